// SPDX-License-Identifier: Apache-2.0
#include "backends/numbers.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/copy.hpp"
#include "base/wide.hpp"
#include "device/arithmetic.hpp"

namespace sluice::backends {
namespace {

template <class T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T, class Change>
void change_each(std::byte* at, const std::byte* operands, std::size_t bytes, Change change) noexcept {
  for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
    const T operand = load<T>(operands + i);
    const std::atomic_ref<T> number(*reinterpret_cast<T*>(at + i));
    T there = number.load(std::memory_order_relaxed);
    while (!number.compare_exchange_weak(there, change(there, operand))) {
    }
  }
}

#ifdef SLUICE_CHANGES_16_BYTES

constexpr std::size_t kHalf = sizeof(std::uint64_t);
constexpr std::size_t kWide = sizeof(base::Halves);

using base::Halves;

/// Changes the one or two numbers in half of a step. In registers: what goes through memory delays the step.
template <class T, class Change>
std::uint64_t changed(std::uint64_t there, std::uint64_t operand, Change change) noexcept {
  if constexpr (sizeof(T) == kHalf) {
    return std::bit_cast<std::uint64_t>(change(std::bit_cast<T>(there), std::bit_cast<T>(operand)));
  } else {
    const auto part = [&](unsigned int shift) -> std::uint64_t {
      const auto of = [&](std::uint64_t both) { return std::bit_cast<T>(static_cast<std::uint32_t>(both >> shift)); };
      return std::uint64_t{std::bit_cast<std::uint32_t>(change(of(there), of(operand)))} << shift;
    };
    return part(0) | part(32);
  }
}

/// A step takes as long for 16 bytes as for 4 (sluice-bench rma: accumulate). `at` is a multiple of 16.
template <class T, class Change>
void change_wide(std::byte* at, const std::byte* operands, std::size_t bytes, Change change) noexcept {
  for (std::size_t i = 0; i < bytes; i += kWide) {
    const auto operand = load<Halves>(operands + i);
    const auto half = [&](std::size_t from) {
      const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at + i + from));
      return word.load(std::memory_order_relaxed);
    };
    Halves there{half(0), half(kHalf)};  // in two steps: if they do not fit together, the exchange finds that
    while (!base::exchange(
        at + i, there, {changed<T>(there.low, operand.low, change), changed<T>(there.high, operand.high, change)})) {
    }
  }
}

template <class T, class Change>
void change_all(std::byte* at, std::span<const std::byte> operands, Change change) noexcept {
  if (!base::changes_16_bytes) return change_each<T>(at, operands.data(), operands.size(), change);
  const std::size_t head = std::min(operands.size(), (kWide - reinterpret_cast<std::uintptr_t>(at) % kWide) % kWide);
  const std::size_t body = (operands.size() - head) / kWide * kWide;
  change_each<T>(at, operands.data(), head, change);
  change_wide<T>(at + head, operands.data() + head, body, change);
  change_each<T>(at + head + body, operands.data() + head + body, operands.size() - head - body, change);
}

#else

template <class T, class Change>
void change_all(std::byte* at, std::span<const std::byte> operands, Change change) noexcept {
  change_each<T>(at, operands.data(), operands.size(), change);
}

#endif

template <class T>
void replace_all(std::byte* at, std::span<const std::byte> operands) noexcept {
  for (std::size_t i = 0; i < operands.size(); i += sizeof(T)) {
    std::atomic_ref<T>(*reinterpret_cast<T*>(at + i)).store(load<T>(operands.data() + i), std::memory_order_release);
  }
}

/// Calls `visit(value)` with a value of the type of the numbers.
template <class Visit>
void with_type(Number number, Visit visit) noexcept {
  switch (number) {
    case Number::int32: return visit(std::int32_t{});
    case Number::uint32: return visit(std::uint32_t{});
    case Number::int64: return visit(std::int64_t{});
    case Number::uint64: return visit(std::uint64_t{});
    case Number::float32: return visit(float{});
    case Number::float64: return visit(double{});
    case Number::float16:
    case Number::bfloat16: return;  // of collectives alone
  }
}

/// The loop, which the compiler makes of vectors.
template <class T, class Change>
[[gnu::always_inline]] inline void change_plainly(std::byte* at, const std::byte* operands,
                                                  std::size_t bytes) noexcept {
  kernel::combine_numbers<T, false>(kernel::Thread(), at, at, operands, bytes / sizeof(T), Change());
}

#if defined(__x86_64__)

const bool g_has_avx2 = [] {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}();

template <class T, class Change>
[[gnu::target("avx2")]] void change_256(std::byte* at, const std::byte* operands, std::size_t bytes) noexcept {
  change_plainly<T, Change>(at, operands, bytes);
}

template <class T, class Change>
void change_alone(std::byte* at, const std::byte* operands, std::size_t bytes) noexcept {
  if (bytes == sizeof(T)) return change_plainly<T, Change>(at, operands, sizeof(T));
  if (g_has_avx2) return change_256<T, Change>(at, operands, bytes);
  change_plainly<T, Change>(at, operands, bytes);
}

#else

template <class T, class Change>
void change_alone(std::byte* at, const std::byte* operands, std::size_t bytes) noexcept {
  change_plainly<T, Change>(at, operands, bytes);
}

#endif

void replace_alone(std::byte* at, const std::byte* operands, std::size_t bytes) noexcept {
  base::copy_bytes(at, operands, bytes);
}

}  // namespace

void change_numbers(std::byte* at, Op op, Number number, std::span<const std::byte> operands) noexcept {
  with_type(number, [&](auto value) {
    using T = decltype(value);
    if (op == Op::replace) return replace_all<T>(at, operands);
    kernel::with_change<T>(op, [&](auto change) { change_all<T>(at, operands, change); });
  });
}

ChangeAlone change_alone(Op op, Number number) noexcept {
  ChangeAlone found = &replace_alone;
  with_type(number, [&](auto value) {
    using T = decltype(value);
    kernel::with_change<T>(op, [&](auto change) { found = &change_alone<T, decltype(change)>; });
  });
  return found;
}

}  // namespace sluice::backends
