// SPDX-License-Identifier: Apache-2.0
// Lets a call that blocks move what other objects of its thread have posted.
#pragma once

#include <sluice/stream.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice::kokkos::detail {

/// The turns of one object: each moves what the object has posted, without blocking. While a call of one object blocks,
/// it takes the turns of all objects that its thread was the last to use, as its peer may wait for any of them first.
class Turns {
 public:
  /// `turn` never blocks, and returns true if nothing is left to be moved. Its exceptions are dropped, as the call that
  /// waits for the failed message throws them again.
  Turns(const Stream& stream, std::function<bool()> turn) : turn_(std::move(turn)) { enlist(stream); }
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
  /// Takes the turns of all other objects of this thread, unless that is being done. Returns true if a wait of this
  /// object would hold up nothing of theirs: in program order it holds up all that is left to be moved, on a stream
  /// what is left to be enqueued there.
  bool take_others() const {
    Thread& thread = *thread_;
    if (thread.count.load(std::memory_order_relaxed) == 1 || thread.taking) return true;
    const std::lock_guard lock(thread.mutex);
    thread.taking = true;
    const std::size_t changes = thread.changes;
    bool none_left = true;
    for (std::size_t i = 0; i < thread.all.size(); ++i) {  // a turn may make objects, and end some
      const Turns* const other = thread.all[i];
      if (other != this && !other->take(stream_)) none_left = false;
    }
    thread.taking = false;
    return none_left && thread.changes == changes;
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
  /// Returns true if a wait on `waiting` would hold up nothing.
  bool take(const Stream& waiting) const noexcept {
    try {
      return turn_() || (waiting.kind() != Stream::Kind::program_order && waiting != stream_);
    } catch (...) {
      return true;
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

  std::function<bool()> turn_;
  Stream stream_;
  std::shared_ptr<Thread> thread_;
};

}  // namespace sluice::kokkos::detail
