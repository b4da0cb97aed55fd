// SPDX-License-Identifier: Apache-2.0
// Lets a call that waits or tests move what other objects of its thread have posted.
#pragma once

#include <sluice/stream.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice::kokkos::detail {

/// What an object has still to move: nothing; puts that can be enqueued, but make a GPU's stream wait for credit; or
/// also what cannot be moved yet.
enum class Left : std::uint8_t { nothing, enqueueable, blocked };

/// The turns of one object: each moves what the object has posted, without blocking. A call of one object takes its own
/// turn and, once enlisted, those of all objects that its thread was the last to use, as its peer may wait for any of
/// them first.
class Turns {
 public:
  /// `turn(stream_may_wait)` never blocks, and returns what is left; it makes a stream wait only if it may. Its
  /// exceptions are dropped, as the call that waits for the failed message throws them again.
  explicit Turns(std::function<Left(bool)> turn) : turn_(std::move(turn)) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns() { leave(); }

  /// Called first by each call of the object: from now on the calling thread takes the turns. `stream`: what is moved
  /// is enqueued there.
  void enlist(const Stream& stream) {
    if (thread_ == nullptr || thread_->id != &id_of_thread) {
      leave();
      auto now = this_thread();
      const std::lock_guard lock(now->mutex);
      now->all.push_back(this);
      now->changed();
      thread_ = std::move(now);
    }
    stream_ = stream;
  }
  /// Takes turns, unless that is being done. Returns true if a wait of this object would hold up nothing: in program
  /// order it holds up all that is left, on a stream what is left to be enqueued there. A stream waits for credit only
  /// once nothing that cannot be enqueued yet would come behind that.
  bool take() const {
    if (thread_ == nullptr || thread_->count.load(std::memory_order_relaxed) == 1 || thread_->taking) {
      Left own = turn(false);
      if (own == Left::enqueueable) own = turn(true);
      return own == Left::nothing;
    }
    Thread& thread = *thread_;
    const std::lock_guard lock(thread.mutex);
    Left left = take_all(thread, false);
    if (left == Left::enqueueable) left = take_all(thread, true);
    return left == Left::nothing;
  }

 private:
  /// A thread's objects. It alone appends and reads; other threads remove what they go on to use, or end.
  struct Thread {
    explicit Thread(const char* of) : id(of) {}
    void changed() {
      count = all.size();
      ++changes;
    }

    const char* const id;
    std::recursive_mutex mutex;
    std::vector<const Turns*> all;
    std::atomic<std::size_t> count = 0;  ///< of `all`
    std::size_t changes = 0;
    bool taking = false;
  };
  static constinit inline thread_local char id_of_thread = 0;  // its address
  /// Not thread_local: objects may be used when those of the thread have ended.
  static std::shared_ptr<Thread> this_thread() {
    static std::mutex& mutex = *new std::mutex;
    static auto& threads = *new std::map<const char*, std::weak_ptr<Thread>>;
    const std::lock_guard lock(mutex);
    if (auto found = threads[&id_of_thread].lock()) return found;
    std::erase_if(threads, [](const auto& one) { return one.second.expired(); });
    auto made = std::make_shared<Thread>(&id_of_thread);
    threads[&id_of_thread] = made;
    return made;
  }
  /// Returns the most that a wait of this object would hold up.
  Left take_all(Thread& thread, bool stream_may_wait) const {
    thread.taking = true;
    const std::size_t changes = thread.changes;
    Left left = Left::nothing;
    for (std::size_t i = 0; i < thread.all.size(); ++i) {  // a turn may make objects, and end some
      const Turns* const one = thread.all[i];
      const bool here = shares_stream_with(*one);
      const Left of_one = one->turn(stream_may_wait && here);
      if (here || stream_.kind() == Stream::Kind::program_order) left = std::max(left, of_one);
    }
    thread.taking = false;
    return thread.changes == changes ? left : Left::blocked;
  }
  /// CUDA's and HIP's default stream waits for others, and they for it.
  bool shares_stream_with(const Turns& other) const noexcept {
    const auto is_default = [](const Stream& stream) { return stream.handle() == nullptr; };
    return stream_ == other.stream_ ||
           (stream_.kind() == other.stream_.kind() && (is_default(stream_) || is_default(other.stream_)));
  }
  Left turn(bool stream_may_wait) const noexcept {
    try {
      return turn_(stream_may_wait);
    } catch (...) {
      return Left::nothing;
    }
  }
  void leave() noexcept {
    if (thread_ == nullptr) return;
    {
      const std::lock_guard lock(thread_->mutex);
      std::erase(thread_->all, this);
      thread_->changed();
    }
    thread_.reset();
  }

  std::function<Left(bool)> turn_;
  Stream stream_;
  std::shared_ptr<Thread> thread_;
};

}  // namespace sluice::kokkos::detail
