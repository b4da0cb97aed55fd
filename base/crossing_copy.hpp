// SPDX-License-Identifier: Apache-2.0
// Copies into memory that another core reads.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/copy.hpp"
#include "base/words.hpp"

namespace sluice::base {

/// Setting of the process: long copies into a peer's memory may bypass the cache below `nontemporal_min`, too.
inline std::atomic<bool> crossing_copies_choose{false};

/// Copies to memory, without a place in the cache, if `past_cache` and the setting allows it. No reader sees a later
/// store before the copy. `to` and `from` do not overlap.
void copy_crossing(bool past_cache, std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

enum class CrossingWay : std::uint8_t {
  c_library,       ///< by the cache, as the C library copies: with `rep movs` (glibc 2.36 on x86)
  as_in_one_core,  ///< by the cache, as what one core writes and reads: by vectors on AMD's processors
  past_cache       ///< with stores that bypass it
};

/// Decides which way copies of about one size go. By the cache, each line comes from the core that has read it before.
/// Past the cache, lines go to memory, and the reader gets them from there. Which way is faster depends on how far
/// apart the two cores are, and on whether the peer reads the bytes at all.
class CrossingChoice {
 public:
  static constexpr std::uint32_t kWays = 3;
  /// Each way is tried for so many copies in a row. The second half is timed: the first copies find the lines where the
  /// other way has left them, or touch new pages.
  static constexpr std::uint32_t kRow = 16;
  /// All are tried again after so many copies, since the processes may be moved to other cores.
  static constexpr std::uint32_t kPeriod = 256 * kRow;

  struct Turn {
    CrossingWay way = CrossingWay::c_library;
    bool timed = false;
  };
  /// Turn that `next` will return.
  Turn coming(std::size_t bytes) const noexcept;
  /// For the next copy.
  Turn next(std::size_t bytes) noexcept;
  /// The time of a copy, and of the fetch ahead of it; past the cache, with the fence behind it.
  void took(CrossingWay way, std::chrono::nanoseconds time) noexcept;
  CrossingWay fastest(std::size_t bytes) const noexcept;

 private:
  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max() / 4;

  std::uint32_t turn_ = 0;
  bool first_period_ = true;
  std::array<std::int64_t, kWays> typical_{kUnknown, kUnknown, kUnknown};  // ns
};

/// Copies of one channel, by the way that is faster here and now. One thread at a time.
class CrossingCopy {
 public:
  /// Shorter copies go by the cache.
  static constexpr std::size_t kLeast = 4096;
  using Now = Clock::time_point (*)();

  explicit CrossingCopy(Now now = Clock::now) noexcept : now_(now) {}
  /// `bytes`: at least kLeast. No reader sees a later store before the copy. `to` and `from` do not overlap.
  void operator()(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
  /// Fetches the target's lines for the next copy, unless it goes past the cache.
  void fetch_ahead(std::byte* to, std::size_t bytes) noexcept;
  /// Any thread.
  bool past_cache_lately() const noexcept { return past_cache_lately_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kPowers = 10;
  static constexpr int kFirstPower = std::bit_width(kLeast) - 1;

  CrossingChoice& choice_of(std::size_t bytes) noexcept;

  const Now now_;
  std::array<CrossingChoice, kPowers> choices_;  // by the power of two of the bytes
  std::chrono::nanoseconds fetching_{};          // ahead of the next copy, if its time counts
  std::atomic<bool> past_cache_lately_{false};
};

}  // namespace sluice::base
