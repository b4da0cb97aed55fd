// SPDX-License-Identifier: Apache-2.0
#include "base/copy.hpp"

#include <algorithm>

#include "base/crossing_copy.hpp"
#include "base/words.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace sluice::base {

#if defined(__x86_64__) && !defined(SLUICE_TELLS_OF_RACES)

constexpr bool kBypasses = true;

/// All is loaded before anything is stored (see copy_2).
static inline void copy_line_past_cache(std::byte* to, const std::byte* from) noexcept {
  const auto* const in = reinterpret_cast<const __m128i*>(from);
  auto* const out = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

/// Ends with a store fence: such stores are not ordered before a later signal otherwise. Goes backwards where loads
/// would wait for stores (a Zen 4, 16 MiB to 16 bytes behind the source, modulo a page: 0.75 ms, forwards 1.24).
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  const std::size_t head = std::min((kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine, bytes);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  const std::size_t tail = bytes % kLine, lines = bytes - tail;
  if (is_little_ahead(to, from)) {
    for (std::size_t at = lines; at != 0; at -= kLine) copy_line_past_cache(to + at - kLine, from + at - kLine);
  } else {
    for (std::size_t at = 0; at != lines; at += kLine) copy_line_past_cache(to + at, from + at);
  }
  std::memcpy(to + lines, from + lines, tail);
  _mm_sfence();
}

#else

constexpr bool kBypasses = false;

void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes); }

#endif

namespace {

#if defined(__x86_64__) && !defined(SLUICE_TELLS_OF_RACES)

template <std::size_t kBytes>
struct Of;
template <>
struct Of<16> {
  using Vector = char __attribute__((vector_size(16), aligned(1), may_alias));
};
template <>
struct Of<32> {
  using Vector = char __attribute__((vector_size(32), aligned(1), may_alias));
  using AlignedVector = char __attribute__((vector_size(32), may_alias));
};
template <>
struct Of<64> {
  using Vector = char __attribute__((vector_size(64), aligned(1), may_alias));
  using AlignedVector = char __attribute__((vector_size(64), may_alias));
};

// Shorter ones do not bypass the cache either.
constexpr std::size_t kLong = 2048;

/// Copies of at least this many bytes are left to the C library, which copies them with `rep movs`. 0 until it is
/// initialised, which leaves all to the C library. Within one core's cache vectors took as long, or less, wherever both
/// were measured on AMD's processors (Zen 3 to 5), and up to 16 KiB on an Intel Xeon (Emerald Rapids). No other was
/// measured.
const std::size_t rep_movs_min = [] {
  constexpr std::size_t kOthers = 32 * 1024;
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0 ? std::numeric_limits<std::size_t>::max() : kOthers;
}();

template <std::size_t kVector>
struct Ends {
  using Vector = typename Of<kVector>::Vector;
  Ends(std::byte* to, const std::byte* from, std::size_t bytes)
      : out(reinterpret_cast<Vector*>(to)), out_end(reinterpret_cast<Vector*>(to + bytes)),
        in(reinterpret_cast<const Vector*>(from)), in_end(reinterpret_cast<const Vector*>(from + bytes)) {}
  Vector *out, *out_end;
  const Vector *in, *in_end;
};

// The first and the last vectors, which overlap. All is loaded before anything is stored: a load waits for a store in
// front of it whose address differs by a multiple of 4 KiB.
template <std::size_t kVector>
[[gnu::always_inline]] inline void copy_2(Ends<kVector> of) {
  const auto a = of.in[0], z = of.in_end[-1];
  of.out[0] = a, of.out_end[-1] = z;
}
template <std::size_t kVector>
[[gnu::always_inline]] inline void copy_4(Ends<kVector> of) {
  const auto a = of.in[0], b = of.in[1], y = of.in_end[-2], z = of.in_end[-1];
  of.out[0] = a, of.out[1] = b, of.out_end[-1] = z, of.out_end[-2] = y;
}
template <std::size_t kVector>
[[gnu::always_inline]] inline void copy_8(Ends<kVector> of) {
  const auto a = of.in[0], b = of.in[1], c = of.in[2], d = of.in[3];
  const auto w = of.in_end[-4], x = of.in_end[-3], y = of.in_end[-2], z = of.in_end[-1];
  of.out[0] = a, of.out[1] = b, of.out[2] = c, of.out[3] = d;
  of.out_end[-1] = z, of.out_end[-2] = y, of.out_end[-3] = x, of.out_end[-4] = w;
}

/// More than 8 vectors. The loop begins at the end if the target is a little ahead.
template <std::size_t kVector>
[[gnu::always_inline]] inline void copy_by_loop(std::byte* to, const std::byte* from, std::size_t bytes) {
  using Vector = typename Of<kVector>::Vector;
  using AlignedVector = typename Of<kVector>::AlignedVector;
  const Ends<kVector> of(to, from, bytes);
  if (!is_little_ahead(to, from)) {
    const Vector first = of.in[0];
    const Vector w = of.in_end[-4], x = of.in_end[-3], y = of.in_end[-2], z = of.in_end[-1];
    of.out[0] = first;
    const std::size_t before = reinterpret_cast<std::uintptr_t>(to) % kVector;
    auto* out = reinterpret_cast<AlignedVector*>(to + kVector - before);
    const auto* in = reinterpret_cast<const Vector*>(from + kVector - before);
    for (; in + 4 < of.in_end; in += 4, out += 4) {
      const Vector a = in[0], b = in[1], c = in[2], d = in[3];
      out[0] = a, out[1] = b, out[2] = c, out[3] = d;
    }
    of.out_end[-4] = w, of.out_end[-3] = x, of.out_end[-2] = y, of.out_end[-1] = z;
  } else {
    const Vector a = of.in[0], b = of.in[1], c = of.in[2], d = of.in[3], last = of.in_end[-1];
    of.out_end[-1] = last;
    const std::size_t behind = reinterpret_cast<std::uintptr_t>(to + bytes) % kVector;
    auto* out = reinterpret_cast<AlignedVector*>(to + bytes - behind);
    const auto* in = reinterpret_cast<const Vector*>(from + bytes - behind);
    for (; in - 4 > of.in; in -= 4, out -= 4) {
      const Vector w = in[-4], x = in[-3], y = in[-2], z = in[-1];
      out[-1] = z, out[-2] = y, out[-3] = x, out[-4] = w;
    }
    of.out[0] = a, of.out[1] = b, of.out[2] = c, of.out[3] = d;
  }
}

/// More than 32 bytes.
template <std::size_t kVector>
[[gnu::always_inline]] inline void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes <= 64) return copy_2<32>({to, from, bytes});
  if (bytes <= 2 * kVector) return copy_2<kVector>({to, from, bytes});
  if (bytes <= 4 * kVector) return copy_4<kVector>({to, from, bytes});
  if (bytes <= 8 * kVector) return copy_8<kVector>({to, from, bytes});
  if (bytes >= kLong) {
    if (bytes >= nontemporal_min.load(std::memory_order_relaxed)) return copy_past_cache(to, from, bytes);
    if (bytes >= rep_movs_min && !is_little_ahead(to, from)) return static_cast<void>(std::memcpy(to, from, bytes));
  }
  copy_by_loop<kVector>(to, from, bytes);
}

[[gnu::target("avx512f")]] void copy_512(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy_by_vectors<64>(to, from, bytes);
}
[[gnu::target("avx2")]] void copy_256(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy_by_vectors<32>(to, from, bytes);
}
void copy_128(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy_by_vectors<32>(to, from, bytes);
}

/// Intel's first processors with 64-byte vectors lower their clock for them; those with VBMI2 do not.
LongCopy best_here() noexcept {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512vbmi2") != 0) return copy_512;
  return __builtin_cpu_supports("avx2") != 0 ? copy_256 : copy_128;
}

#else

void copy_128(std::byte* to, const std::byte* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes); }
LongCopy best_here() noexcept { return copy_128; }

#endif

void fetch_lines_to_write(std::byte* at, std::size_t bytes) noexcept { fetch_few_to_write(at, bytes); }

bool has_prefetchw() noexcept {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & bit_PRFCHW) != 0;
#else
  return true;
#endif
}

const bool g_chosen = (copy_long.store(best_here()), can_fetch_to_write.store(has_prefetchw()), true);

}  // namespace

// Until the program has been loaded.
constinit std::atomic<LongCopy> copy_long{copy_128};
constinit std::atomic<bool> can_fetch_to_write{false};
constinit std::atomic<FetchToWrite> fetch_to_write{fetch_lines_to_write};

void prepare_copies(std::size_t past_cache_from, bool choose) {
  nontemporal_min.store(past_cache_from);
  crossing_copies_choose.store(choose && kBypasses);
}

}  // namespace sluice::base
