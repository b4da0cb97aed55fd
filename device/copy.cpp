// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "device/gpu.hpp"
#include "device/memory.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::device {
namespace {

std::atomic<std::size_t> nontemporal_min{std::numeric_limits<std::size_t>::max()};

#if defined(__x86_64__)
/// Past the cache, 64 bytes at a time. Ends with a store fence: such stores are not ordered before a later signal
/// otherwise.
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::size_t head = std::min(bytes, (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= 64; to += 64, from += 64, bytes -= 64) {
    for (int i = 0; i < 64; i += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
  }
  std::memcpy(to, from, bytes);
  _mm_sfence();
}
#else
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes); }
#endif

}  // namespace

void set_nontemporal_min(std::size_t bytes) noexcept { nontemporal_min.store(bytes, std::memory_order_relaxed); }

void copy(Lane, void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes >= nontemporal_min.load(std::memory_order_relaxed)) {
    copy_past_cache(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace sluice::device
