// SPDX-License-Identifier: Apache-2.0
// Copies in the processor's memory. Inline, because a copy of a few bytes takes less time than a call.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/races.hpp"

namespace sluice::base {

/// Copies of at least this many bytes bypass the cache.
inline std::atomic<std::size_t> nontemporal_min{std::numeric_limits<std::size_t>::max()};

/// Chooses how copies are done, and from how many bytes on they bypass the cache. `choose`: shorter ones into a peer's
/// memory may bypass it too (crossing_copy.hpp). The first call may measure, for some microseconds; until then long
/// copies are right, but not the fastest.
void prepare_copies(std::size_t past_cache_from, bool choose = false);

/// Copies to memory, without a place in the cache, where the processor can. No reader sees a later store before
/// the copy. `to` and `from` do not overlap.
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

using LongCopy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
/// Copies more than 32 bytes, as is best on this processor.
extern constinit std::atomic<LongCopy> copy_long;
/// The same without `rep movs`, for at least 1 KiB.
extern constinit std::atomic<LongCopy> copy_long_by_vectors;

/// The first and the last `Unit` of the bytes, which overlap if there are less than two. All is loaded before anything
/// is stored (see copy.cpp).
template <class Unit>
void copy_both_ends(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  Unit first, last;
  std::memcpy(&first, from, sizeof first);
  std::memcpy(&last, from + bytes - sizeof last, sizeof last);
  std::memcpy(to, &first, sizeof first);
  std::memcpy(to + bytes - sizeof last, &last, sizeof last);
}

/// No reader sees a later store before the copy. `to` and `from` do not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#ifdef SLUICE_TELLS_OF_RACES
  std::memcpy(to, from, bytes);  // which ThreadSanitizer knows as one access
#else
  if (bytes > 32) return copy_long.load(std::memory_order_relaxed)(to, from, bytes);
  if (bytes >= 16) return copy_both_ends<std::array<std::uint64_t, 2>>(to, from, bytes);
  if (bytes >= 8) return copy_both_ends<std::uint64_t>(to, from, bytes);
  if (bytes >= 4) return copy_both_ends<std::uint32_t>(to, from, bytes);
  if (bytes >= 2) return copy_both_ends<std::uint16_t>(to, from, bytes);
  if (bytes == 1) *to = *from;
#endif
}

}  // namespace sluice::base
