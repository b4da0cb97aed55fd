// SPDX-License-Identifier: Apache-2.0
#include "base/copy.hpp"

#include <algorithm>
#include <vector>

#include "base/crossing_copy.hpp"
#include "base/words.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::base {

#if defined(__x86_64__) && !defined(SLUICE_TELLS_OF_RACES)

constexpr bool kBypasses = true;

/// Ends with a store fence: such stores are not ordered before a later signal otherwise.
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  const std::size_t head = std::min((kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine, bytes);
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
// From here on `rep movs` is faster into lines that another core has read (sluice-bench latency --touch: 16 KiB in 3.3
// us, by vectors in 5.1), though not within one core's cache (sluice-bench copy), and not between cores of a Zen 4 that
// share a cache (crossing_copy.hpp).
constexpr std::size_t kCrossing = 4 * 1024;

/// Copies of at least this many bytes are left to the C library, which copies them with `rep movs`.
std::atomic<std::size_t> rep_movs_min{std::numeric_limits<std::size_t>::max()};

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

/// The target's addresses are a little above the source's, modulo a page. Loads of a loop from the beginning would wait
/// for its stores; `rep movs` takes up to 20 times as long on AMD's processors if that is by some bytes (a Zen 3, a Zen
/// 4).
[[gnu::always_inline]] inline bool is_little_ahead(const std::byte* to, const std::byte* from) noexcept {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kLittle = 512;
  return (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage - 1 < kLittle;
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
  if (bytes <= 64) return copy_4<16>({to, from, bytes});
  if (bytes <= 2 * kVector) return copy_2<kVector>({to, from, bytes});
  if (bytes <= 4 * kVector) return copy_4<kVector>({to, from, bytes});
  if (bytes <= 8 * kVector) return copy_8<kVector>({to, from, bytes});
  if (bytes >= kLong) {
    if (bytes >= nontemporal_min.load(std::memory_order_relaxed)) return copy_past_cache(to, from, bytes);
    if (bytes >= rep_movs_min.load(std::memory_order_relaxed) && !is_little_ahead(to, from))
      return static_cast<void>(std::memcpy(to, from, bytes));
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

[[gnu::target("avx512f")]] void loop_512(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy_by_loop<64>(to, from, bytes);
}
[[gnu::target("avx2")]] void loop_256(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  copy_by_loop<32>(to, from, bytes);
}
void loop_128(std::byte* to, const std::byte* from, std::size_t bytes) noexcept { copy_by_loop<32>(to, from, bytes); }

struct LongCopies {
  LongCopy any;
  LongCopy by_vectors;
};

/// Intel's first processors with 64-byte vectors lower their clock for them; those with VBMI2 do not.
LongCopies best_here() noexcept {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512vbmi2") != 0) return {copy_512, loop_512};
  return __builtin_cpu_supports("avx2") != 0 ? LongCopies{copy_256, loop_256} : LongCopies{copy_128, loop_128};
}

/// On AMD's processors `rep movs` may be up to 16 times as slow as vectors if the target lies a few bytes behind the
/// source, modulo a page (Zen 3, glibc 2.36). On a Zen 5 it is not, and may take a little longer than vectors here,
/// in one core's cache.
std::size_t measured_rep_movs_min() {
  if (__builtin_cpu_is("amd") == 0) return kLong;
  constexpr std::size_t kBytes = 32 * 1024;
  constexpr std::size_t kBehind = 16;
  constexpr int kRounds = 5;
  std::vector<std::byte> buffers(2 * kBytes + kBehind);
  std::byte* const from = buffers.data();
  std::byte* const to = from + kBytes + kBehind;
  const auto time = [&](auto copy) {
    const auto began = Clock::now();
    copy(to, from, kBytes);
    asm volatile("" : : "r"(to) : "memory");
    return Clock::now() - began;
  };
  auto by_vectors = Clock::duration::max();
  auto by_rep_movs = by_vectors;
  for (int i = 0; i < kRounds; ++i) {
    by_vectors = std::min(by_vectors, time(best_here().any));
    by_rep_movs = std::min(by_rep_movs, time([](auto... arguments) { std::memcpy(arguments...); }));
  }
  return by_rep_movs < 2 * by_vectors ? kCrossing : std::numeric_limits<std::size_t>::max();
}

#else

void copy_128(std::byte* to, const std::byte* from, std::size_t bytes) noexcept { std::memcpy(to, from, bytes); }

struct LongCopies {
  LongCopy any = copy_128;
  LongCopy by_vectors = copy_128;
};
LongCopies best_here() noexcept { return {}; }

#endif

const bool g_chosen = (copy_long.store(best_here().any), copy_long_by_vectors.store(best_here().by_vectors), true);

}  // namespace

// Until the program has been loaded.
constinit std::atomic<LongCopy> copy_long{copy_128};
constinit std::atomic<LongCopy> copy_long_by_vectors{copy_128};

void prepare_copies(std::size_t past_cache_from, bool choose) {
  nontemporal_min.store(past_cache_from);
  crossing_copies_choose.store(choose && kBypasses);
#if defined(__x86_64__) && !defined(SLUICE_TELLS_OF_RACES)
  static const std::size_t least = measured_rep_movs_min();
  rep_movs_min.store(least);
#endif
}

}  // namespace sluice::base
