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

/// Sets from how many bytes on copies bypass the cache. `choose`: shorter ones into a peer's memory may bypass it too
/// (crossing_copy.hpp).
void prepare_copies(std::size_t past_cache_from, bool choose = false);

/// The target's addresses are a little above the source's, modulo a page. Loads of a loop from the beginning would wait
/// for its stores; `rep movs` takes up to 23 times as long on AMD's processors if that is by some bytes (Zen 3, Zen 4).
[[gnu::always_inline]] inline bool is_little_ahead(const std::byte* to, const std::byte* from) noexcept {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kLittle = 512;
  return (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage - 1 < kLittle;
}

/// Copies to memory, without a place in the cache, where the processor can. No reader sees a later store before
/// the copy. `to` and `from` do not overlap.
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

using LongCopy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
/// Copies more than 32 bytes, as is best on this processor.
extern constinit std::atomic<LongCopy> copy_long;

/// True if the processor has `prefetchw`. Intel's first 64-bit processors raise SIGILL at `prefetchw` (a Pentium D:
/// github.com/dlang/dmd/pull/6266).
extern constinit std::atomic<bool> can_fetch_to_write;
/// Begins to fetch the lines of memory that this core will write soon, and does not wait for them. Cores that have read
/// them lose them. For few lines, which take less time than a call.
[[gnu::always_inline]] inline void fetch_few_to_write(std::byte* at, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  if (!can_fetch_to_write.load(std::memory_order_relaxed)) return;
#if defined(__x86_64__)
  // The compiler uses the instruction only in functions with its attribute, which are not inlined.
  for (std::size_t line = 0; line < bytes; line += kLine) asm volatile("prefetchw %0" : : "m"(at[line]));
#else
  for (std::size_t line = 0; line < bytes; line += kLine) __builtin_prefetch(at + line, 1);
#endif
}

using FetchToWrite = void (*)(std::byte* at, std::size_t bytes) noexcept;
/// Begins to fetch many lines, like `fetch_few_to_write`.
extern constinit std::atomic<FetchToWrite> fetch_to_write;

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
