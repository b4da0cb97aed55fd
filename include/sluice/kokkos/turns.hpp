// SPDX-License-Identifier: Apache-2.0
// What several objects of a thread have posted, moved by whichever of their calls blocks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice::kokkos::detail {

/// One object's turns: moving what it has posted without blocking. While a call of one object blocks, it takes the
/// turns of all that its thread was the last to use, since its peer may wait for any of them first.
class Turns {
 public:
  /// `turn` never blocks; true if nothing is left to be moved. What it throws is lost: what has failed is thrown again
  /// by the call that waits for it.
  explicit Turns(std::function<bool()> turn) : turn_(std::move(turn)) { here(); }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns() { leave(); }

  /// From now on calls of this thread take the turns.
  void here() {
    const std::shared_ptr<Thread>& now = this_thread();
    if (thread_ == now) return;
    leave();
    thread_ = now;
    const std::lock_guard lock(now->mutex);
    now->all.push_back(this);
    now->count = now->all.size();
  }
  /// Takes the turns of all other objects of this thread. Returns true if nothing of them is left to be moved.
  bool of_others() const {
    if (thread_->count.load(std::memory_order_relaxed) == 1) return true;
    const std::lock_guard lock(thread_->mutex);
    bool all = true;
    for (std::size_t i = 0; i < thread_->all.size(); ++i) {  // a turn may make such objects, and end some
      if (const Turns* const one = thread_->all[i]; one != this) all = one->take() && all;
    }
    return all;
  }

 private:
  /// Only its thread reads or appends; another one removes what it goes on to use, or ends.
  struct Thread {
    std::recursive_mutex mutex;
    std::vector<const Turns*> all;
    std::atomic<std::size_t> count;  ///< of `all`
  };
  static const std::shared_ptr<Thread>& this_thread() {
    thread_local const auto one = std::make_shared<Thread>();
    return one;
  }
  bool take() const noexcept {
    try {
      return turn_();
    } catch (...) {
      return true;
    }
  }
  void leave() noexcept {
    if (thread_ == nullptr) return;
    const std::lock_guard lock(thread_->mutex);
    std::erase(thread_->all, this);
    thread_->count = thread_->all.size();
  }

  std::function<bool()> turn_;
  std::shared_ptr<Thread> thread_;
};

}  // namespace sluice::kokkos::detail
