// SPDX-License-Identifier: Apache-2.0
// Lets a call that waits or tests move what other objects of its thread have posted.
#pragma once

#include <sluice/stream.hpp>

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

/// The messages that an object has not moved yet.
/// enqueueable: only puts to one peer, which can be enqueued, but make a GPU's stream wait for credit.
/// blocked: includes messages that cannot be moved or enqueued yet.
enum class Unmoved : std::uint8_t { nothing, enqueueable, blocked };

/// Gives a variable another value until this ends.
template <class T>
class Scoped : sluice::detail::NonCopyable {
 public:
  Scoped(T& variable, T value) : variable_(variable), before_(std::exchange(variable, value)) {}
  ~Scoped() { variable_ = before_; }

 private:
  T& variable_;
  T before_;
};

/// The turns of one object: each moves what the object has posted, without blocking. A call of one object takes its own
/// turn and, once enlisted, those of all objects that its thread was the last to use, as its peer may wait for any of
/// them first.
class Turns : sluice::detail::NonCopyable {
 public:
  /// `turn(stream_may_wait)` never blocks, and returns what is left; it makes a stream wait only if it may. Its
  /// exceptions are dropped, as the call that waits for the failed message throws them again.
  explicit Turns(std::function<Unmoved(bool)> turn) : turn_(std::move(turn)) {}
  ~Turns() { leave(); }

  /// Called first by each call of the object: from now on the calling thread takes the turns. `stream`: the one that
  /// the object enqueues on.
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
  /// Takes turns. Returns true if a wait of this object would delay no message: in program order a wait delays all that
  /// are left, on a stream those left to be enqueued there. A stream waits for credit only if a single object has
  /// messages left there: so no put waits for the credit of a later put to another peer.
  bool take() const {
    if (thread_ != nullptr && thread_->taking) return turn(false) == Unmoved::nothing;
    if (thread_ == nullptr || thread_->count.load(std::memory_order_relaxed) == 1) {
      const Unmoved own = turn(false);
      return own == Unmoved::nothing || (own == Unmoved::enqueueable && turn(true) == Unmoved::nothing);
    }
    const std::lock_guard lock(thread_->mutex);
    const Scoped taking(thread_->taking, true);
    return take_all(*thread_);
  }

 private:
  static constinit inline thread_local char id_of_thread = 0;  // its address
  /// The objects that a thread was the last to use. Only that thread appends and reads; other threads remove objects
  /// that they use next, or destroy.
  struct Thread {
    void changed() {
      count = all.size();
      ++changes;
    }

    const char* const id = &id_of_thread;
    std::recursive_mutex mutex;
    std::vector<const Turns*> all;
    std::atomic<std::size_t> count = 0;  ///< of `all`
    std::size_t changes = 0;
    bool taking = false;
  };
  /// Not thread_local: objects may be used when the thread_local ones of the thread are destroyed.
  static std::shared_ptr<Thread> this_thread() {
    static std::mutex& mutex = *new std::mutex;
    static auto& threads = *new std::map<const char*, std::weak_ptr<Thread>>;
    const std::lock_guard lock(mutex);
    if (auto found = threads[&id_of_thread].lock()) return found;
    std::erase_if(threads, [](const auto& one) { return one.second.expired(); });
    auto made = std::make_shared<Thread>();
    threads[&id_of_thread] = made;
    return made;
  }
  bool take_all(const Thread& thread) const {
    const std::size_t changes = thread.changes;
    const Turns* enqueueable = nullptr;  // the last one that has something left, if a stream may have to wait
    std::size_t held_up = 0;
    for (std::size_t i = 0; i < thread.all.size(); ++i) {  // a turn may make objects, and end some
      const Turns* const one = thread.all[i];
      const Unmoved of_one = one->turn(false);
      if (of_one == Unmoved::nothing) continue;
      if (!one->shares_stream_with(*this) && stream_.kind() != Stream::Kind::program_order) continue;
      ++held_up;
      enqueueable = of_one == Unmoved::enqueueable && one->shares_stream_with(*this) ? one : nullptr;
    }
    if (thread.changes != changes) return false;
    if (held_up == 1 && enqueueable != nullptr) return enqueueable->turn(true) == Unmoved::nothing;
    return held_up == 0;
  }
  /// CUDA's and HIP's default stream waits for others, and they for it.
  bool shares_stream_with(const Turns& other) const noexcept {
    const auto is_default = [](const Stream& stream) { return stream.handle() == nullptr; };
    return stream_ == other.stream_ ||
           (stream_.kind() == other.stream_.kind() && (is_default(stream_) || is_default(other.stream_)));
  }
  Unmoved turn(bool stream_may_wait) const noexcept {
    try {
      return turn_(stream_may_wait);
    } catch (...) {
      return Unmoved::nothing;
    }
  }
  void leave() noexcept {
    const auto thread = thread_;  // outlives the lock
    if (thread == nullptr) return;
    const std::lock_guard lock(thread->mutex);
    std::erase(thread->all, this);
    thread->changed();
    thread_.reset();
  }

  std::function<Unmoved(bool)> turn_;
  Stream stream_;
  std::shared_ptr<Thread> thread_;
};

}  // namespace sluice::kokkos::detail
