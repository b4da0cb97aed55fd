// SPDX-License-Identifier: Apache-2.0
// Counters in memory that two ranks have mapped.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bench {

using Counter = std::atomic<std::uint64_t>;
inline constexpr std::size_t kLine = 64;

/// Spins until the counter is at least `least`, and returns it.
inline std::uint64_t await_count(const Counter& counter, std::uint64_t least) {
  // After so many loads a wait yields its core, because the peer may need the same one. On cores of their own a wait
  // ends much earlier.
  constexpr int kLoadsBeforeYield = 100000;
  for (int loads = 0;; ++loads) {
    const std::uint64_t value = counter.load(std::memory_order_acquire);
    if (value >= least) return value;
    if (loads >= kLoadsBeforeYield) ::sched_yield();
  }
}

}  // namespace bench
