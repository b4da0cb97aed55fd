// SPDX-License-Identifier: Apache-2.0
// The epochs of one verb of a channel, counted by the host or, where kernels drive the channel, by them.
#pragma once

#include <sluice/device.hpp>

#include <atomic>
#include <cstdint>

#include "base/words.hpp"

namespace sluice::runtime {

class Epochs {
 public:
  /// The last enqueued epoch. If kernels count: the last one that began for good.
  std::uint64_t last() const noexcept {
    const kernel::Count* const count = by_kernels_.load(std::memory_order_acquire);
    return count == nullptr ? by_host() : kernel::load_acquire(count->entered);
  }
  /// Like `last`, but includes an epoch that a kernel may still withdraw.
  std::uint64_t begun() const noexcept {
    kernel::Count* const count = by_kernels_.load(std::memory_order_acquire);
    return count == nullptr ? by_host() : std::atomic_ref(count->begun).load();
  }
  std::uint64_t by_host() const noexcept { return by_host_.load(std::memory_order_relaxed); }

  /// Called by the host, in order. The fence pairs with the engine, which shuts the end and then reads the epoch: one
  /// of the two sees the other.
  void enqueue(std::uint64_t epoch) noexcept {
    by_host_.store(epoch, std::memory_order_relaxed);
    base::light_fence();
  }
  /// The last `count` epochs, up to `epoch`.
  void withdraw(std::uint64_t epoch, std::uint64_t count) noexcept {
    by_host_.store(epoch - count, std::memory_order_relaxed);
  }

  /// From now on kernels count, beginning at the host's epoch.
  void let_kernels_count(kernel::Count& count) noexcept {
    count.begun = count.entered = by_host();
    count.held = kernel::kOpen;
    by_kernels_.store(&count, std::memory_order_release);
  }
  bool counted_by_kernels() const noexcept { return by_kernels_.load(std::memory_order_acquire) != nullptr; }
  /// Kernels begin no epoch any more.
  void hold_kernels(bool failed) noexcept {
    kernel::Count* const count = by_kernels_;
    if (count == nullptr) return;
    const std::atomic_ref held(count->held);
    std::uint64_t open = kernel::kOpen;
    if (failed) return held.store(kernel::kHeldByFailure);
    held.compare_exchange_strong(open, kernel::kHeldByClosing);
  }
  /// Kernels that come later find nothing to do.
  void close_for_kernels() noexcept {
    if (kernel::Count* const count = by_kernels_) std::atomic_ref(count->closed).store(1);
  }
  /// All eager kernels that were enqueued have begun. Replays of graphs are not included.
  bool kernels_have_begun() const noexcept {
    const kernel::Count* const count = by_kernels_;
    return count == nullptr || kernel::load_acquire(count->eager) >= count->launched;
  }
  /// True if it is known for good which epochs have begun. For an end that is closed.
  bool is_decided() const noexcept {
    kernel::Count* const count = by_kernels_;
    return count == nullptr || kernel::is_decided(*count);
  }

 private:
  std::atomic<std::uint64_t> by_host_{0};
  std::atomic<kernel::Count*> by_kernels_{nullptr};
};

}  // namespace sluice::runtime
