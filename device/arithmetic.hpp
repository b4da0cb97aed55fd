// SPDX-License-Identifier: Apache-2.0
// Operations on numbers, compiled for CUDA, for HIP and for the host: so all of them give the same bits. Each is one
// addition, multiplication or comparison of the processor, which IEEE 754 fixes to the bit, but for the bits of NaNs.
#pragma once

#include <sluice/device_words.hpp>
#include <sluice/ops.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace sluice::kernel {

template <class To, class From>
SLUICE_DEVICE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// Memory of the program may lie at any address. A GPU reads a number at once only where it is aligned.
template <class T, bool Aligned>
SLUICE_DEVICE T load_number(const std::byte* at) {
  T value;
  if constexpr (Aligned)
    __builtin_memcpy(&value, __builtin_assume_aligned(at, sizeof(T)), sizeof value);
  else
    __builtin_memcpy(&value, at, sizeof value);
  return value;
}

template <bool Aligned, class T>
SLUICE_DEVICE void store_number(std::byte* at, T value) {
  if constexpr (Aligned)
    __builtin_memcpy(__builtin_assume_aligned(at, sizeof(T)), &value, sizeof value);
  else
    __builtin_memcpy(at, &value, sizeof value);
}

/// Integers are combined modulo 2^n, as unsigned ones.
template <class T>
struct Modulo {
  using type = std::make_unsigned_t<T>;
};
template <>
struct Modulo<float> {
  using type = float;
};
template <>
struct Modulo<double> {
  using type = double;
};

template <class T>
struct Sum {
  SLUICE_DEVICE T operator()(T first, T second) const {
    using Wide = typename Modulo<T>::type;
    return static_cast<T>(static_cast<Wide>(first) + static_cast<Wide>(second));
  }
};
template <class T>
struct Product {
  SLUICE_DEVICE T operator()(T first, T second) const {
    using Wide = typename Modulo<T>::type;
    return static_cast<T>(static_cast<Wide>(first) * static_cast<Wide>(second));
  }
};

/// A NaN stays one: the result then does not depend on the order.
template <class T, bool Greater>
struct Better {
  SLUICE_DEVICE T operator()(T first, T second) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (first != first) return first;
      if (second != second) return second;
    }
    return (Greater ? first < second : second < first) ? second : first;
  }
};
template <class T>
using Min = Better<T, false>;
template <class T>
using Max = Better<T, true>;

template <class T>
struct And {
  SLUICE_DEVICE T operator()(T first, T second) const { return first & second; }
};
template <class T>
struct Or {
  SLUICE_DEVICE T operator()(T first, T second) const { return first | second; }
};
template <class T>
struct Xor {
  SLUICE_DEVICE T operator()(T first, T second) const { return first ^ second; }
};

// IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of fraction.

SLUICE_DEVICE float from_half(std::uint16_t half) {
  constexpr float kLeast = 1.0F / (1 << 24);  // of the subnormal numbers
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = (half >> 10U) & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) return bits_as<float>(bits_as<std::uint32_t>(static_cast<float>(fraction) * kLeast) | sign);
  const std::uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + 127 - 15;
  return bits_as<float>(sign | wide << 23U | fraction << 13U);
}

/// Rounds to the nearest, ties to even.
SLUICE_DEVICE std::uint16_t to_half(float value) {
  constexpr float kSteps = 1 << 24;           // of the subnormal numbers, in 1
  constexpr float kFractionless = 1U << 23U;  // from here on a float32 has no fraction: a sum is rounded to a number
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > 0x7F80'0000U) return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13U) & 0x3FFU));
  if (magnitude >= 0x4780'0000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // 2^16 and more
  if (magnitude < 0x3880'0000U) {  // below 2^-14: the nearest multiple of 2^-24
    const float rounded = bits_as<float>(magnitude) * kSteps + kFractionless;
    return static_cast<std::uint16_t>(sign | (bits_as<std::uint32_t>(rounded) & 0x7FFU));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13U) & 1U);
  // May carry into infinity.
  return static_cast<std::uint16_t>(sign | ((rounded - ((127U - 15U) << 23U)) >> 13U));
}

// bfloat16: the upper half of a float32.

SLUICE_DEVICE float from_bfloat(std::uint16_t half) { return bits_as<float>(std::uint32_t{half} << 16U); }

SLUICE_DEVICE std::uint16_t to_bfloat(float value) {
  const auto bits = bits_as<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// Between numbers of 16 bits and float32.
template <Number Narrow>
struct Widen {
  using From = std::uint16_t;
  using To = float;
  SLUICE_DEVICE float operator()(std::uint16_t number) const {
    return Narrow == Number::float16 ? from_half(number) : from_bfloat(number);
  }
};
template <Number Narrow>
struct Narrowed {
  using From = float;
  using To = std::uint16_t;
  SLUICE_DEVICE std::uint16_t operator()(float number) const {
    return Narrow == Number::float16 ? to_half(number) : to_bfloat(number);
  }
};

/// The share of `threads` of to[i] = operation(first[i], second[i]).
template <class T, bool Aligned, class Operation>
SLUICE_DEVICE void combine_numbers(const auto& threads, std::byte* to, const std::byte* first, const std::byte* second,
                                   std::uint64_t count, Operation operation) {
  for (std::uint64_t i = threads.index(); i < count; i += threads.size()) {
    const std::uint64_t at = i * sizeof(T);
    store_number<Aligned>(to + at,
                          operation(load_number<T, Aligned>(first + at), load_number<T, Aligned>(second + at)));
  }
}

/// The share of `threads` of to[i] = convert(from[i]).
template <bool Aligned, class Convert>
SLUICE_DEVICE void convert_numbers(const auto& threads, std::byte* to, const std::byte* from, std::uint64_t count,
                                   Convert convert) {
  using From = typename Convert::From;
  for (std::uint64_t i = threads.index(); i < count; i += threads.size())
    store_number<Aligned>(to + i * sizeof(typename Convert::To),
                          convert(load_number<From, Aligned>(from + i * sizeof(From))));
}

// The minimum and maximum of atomics keep the number in memory if one of the two is NaN.
template <class T>
struct AtomicMin {
  SLUICE_DEVICE T operator()(T there, T operand) const { return operand < there ? operand : there; }
};
template <class T>
struct AtomicMax {
  SLUICE_DEVICE T operator()(T there, T operand) const { return operand > there ? operand : there; }
};

/// Calls `work` with the operation of a collective for numbers of type T.
template <class T, class Work>
SLUICE_DEVICE void with_operation(Op op, Work work) {
  switch (op) {
    case Op::sum: return work(Sum<T>());
    case Op::product: return work(Product<T>());
    case Op::min: return work(Min<T>());
    case Op::max: return work(Max<T>());
    case Op::replace: return;
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor: break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == Op::bit_and) return work(And<T>());
    if (op == Op::bit_or) return work(Or<T>());
    work(Xor<T>());
  }
}

/// Calls `work` with the operation of an atomic, on a number of type T in memory and an operand; not for Op::replace,
/// which needs no number in memory, nor for Op::product, which windows do not have.
template <class T, class Work>
SLUICE_DEVICE void with_change(Op op, Work work) {
  if (op == Op::sum) return work(Sum<T>());
  if (op == Op::min) return work(AtomicMin<T>());
  if (op == Op::max) return work(AtomicMax<T>());
  if constexpr (std::is_integral_v<T>) {
    if (op == Op::bit_and) return work(And<T>());
    if (op == Op::bit_or) return work(Or<T>());
    if (op == Op::bit_xor) work(Xor<T>());
  }
}

}  // namespace sluice::kernel
