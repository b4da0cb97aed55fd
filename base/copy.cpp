// SPDX-License-Identifier: Apache-2.0
#include "base/copy.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::base {
namespace {

#if defined(__x86_64__) && !defined(SLUICE_TELLS_OF_RACES)

// Compiled for two kinds of processor, of which the loader takes the better one.
#define SLUICE_FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))

constexpr std::size_t kVector = 32;
using Vector = char __attribute__((vector_size(kVector), aligned(1), may_alias));
using AlignedVector = char __attribute__((vector_size(kVector), may_alias));

/// The C library copies with `rep movs` from about 2 KiB on. On AMD's processors that is slower than vectors, up to 16
/// times where the addresses are not aligned alike (Zen 3, glibc 2.36).
const bool kRepMovsIsFast = [] {
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") == 0;
}();
constexpr std::size_t kRepMovsMin = 2048;  // shorter ones do not bypass the cache either

/// Ends with a store fence: such stores are not ordered before a later signal otherwise.
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
    const auto* const in = reinterpret_cast<const __m128i*>(from);
    auto* const out = reinterpret_cast<__m128i*>(to);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(out + i, _mm_loadu_si128(in + i));
  }
  std::memcpy(to, from, bytes);
  _mm_sfence();
}

/// More than 8 vectors. The loop begins at the end if the target's addresses are a little above the source's, modulo a
/// page: a load waits for a store in front of it whose address differs by a multiple of 4 KiB.
[[gnu::always_inline]] inline void copy_by_loop(Vector* out, Vector* out_end, const Vector* in, const Vector* in_end) {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kLittle = 512;
  const auto ahead = reinterpret_cast<std::uintptr_t>(out) - reinterpret_cast<std::uintptr_t>(in);
  if (ahead % kPage - 1 >= kLittle) {
    const Vector first = in[0], w = in_end[-4], x = in_end[-3], y = in_end[-2], z = in_end[-1];
    out[0] = first;
    auto* aligned = reinterpret_cast<AlignedVector*>(out + 1);
    const std::size_t before = reinterpret_cast<std::uintptr_t>(aligned) % kVector;
    aligned = reinterpret_cast<AlignedVector*>(reinterpret_cast<std::byte*>(aligned) - before);
    in = reinterpret_cast<const Vector*>(reinterpret_cast<const std::byte*>(in + 1) - before);
    for (; in + 4 < in_end; in += 4, aligned += 4) {
      const Vector a = in[0], b = in[1], c = in[2], d = in[3];
      aligned[0] = a, aligned[1] = b, aligned[2] = c, aligned[3] = d;
    }
    out_end[-4] = w, out_end[-3] = x, out_end[-2] = y, out_end[-1] = z;
  } else {
    const Vector a = in[0], b = in[1], c = in[2], d = in[3], last = in_end[-1];
    out_end[-1] = last;
    const std::size_t behind = reinterpret_cast<std::uintptr_t>(out_end) % kVector;
    auto* aligned = reinterpret_cast<AlignedVector*>(reinterpret_cast<std::byte*>(out_end) - behind);
    const auto* from = reinterpret_cast<const Vector*>(reinterpret_cast<const std::byte*>(in_end) - behind);
    for (; from - 4 > in; from -= 4, aligned -= 4) {
      const Vector w = from[-4], x = from[-3], y = from[-2], z = from[-1];
      aligned[-1] = z, aligned[-2] = y, aligned[-3] = x, aligned[-4] = w;
    }
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
  }
}

SLUICE_FOR_EACH_PROCESSOR void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const auto* const in = reinterpret_cast<const Vector*>(from);
  const auto* const in_end = reinterpret_cast<const Vector*>(from + bytes);
  auto* const out = reinterpret_cast<Vector*>(to);
  auto* const out_end = reinterpret_cast<Vector*>(to + bytes);
  if (bytes > 8 * kVector) {
    if (bytes >= kRepMovsMin) {
      if (bytes >= nontemporal_min.load(std::memory_order_relaxed)) return copy_past_cache(to, from, bytes);
      if (kRepMovsIsFast) return static_cast<void>(std::memcpy(to, from, bytes));
    }
    return copy_by_loop(out, out_end, in, in_end);
  }
  // All is loaded before anything is stored, as in the loop.
  if (bytes <= 2 * kVector) {
    const Vector a = in[0], z = in_end[-1];
    out[0] = a, out_end[-1] = z;
  } else if (bytes <= 4 * kVector) {
    const Vector a = in[0], b = in[1], y = in_end[-2], z = in_end[-1];
    out[0] = a, out[1] = b, out_end[-1] = z, out_end[-2] = y;
  } else {
    const Vector a = in[0], b = in[1], c = in[2], d = in[3];
    const Vector w = in_end[-4], x = in_end[-3], y = in_end[-2], z = in_end[-1];
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
    out_end[-1] = z, out_end[-2] = y, out_end[-3] = x, out_end[-4] = w;
  }
}

#else

void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes); }

#endif

}  // namespace

void copy_long(std::byte* to, const std::byte* from, std::size_t bytes) noexcept { copy_by_vectors(to, from, bytes); }

}  // namespace sluice::base
