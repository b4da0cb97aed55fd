// SPDX-License-Identifier: Apache-2.0
#include "collectives/numbers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

namespace sluice::collectives {
namespace {

// Memory of the program may lie at any address.
template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T, class Operation>
void each(std::byte* to, const std::byte* first, const std::byte* second, std::size_t bytes,
          Operation operation) noexcept {
  for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
    const T result = operation(load<T>(first + i), load<T>(second + i));
    std::memcpy(to + i, &result, sizeof result);
  }
}

/// Integers are combined modulo 2^n, as unsigned ones.
template <class T, class Operation>
auto modulo(Operation operation) {
  return [operation](T first, T second) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(operation(static_cast<Unsigned>(first), static_cast<Unsigned>(second)));
    } else {
      return operation(first, second);
    }
  };
}

/// A NaN stays one: the result then does not depend on the order.
template <class T, class Better>
auto better(Better is_better) {
  return [is_better](T first, T second) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(first) || std::isnan(second)) return std::isnan(first) ? first : second;
    }
    return is_better(second, first) ? second : first;
  };
}

template <class T>
void combine_as(Op op, std::byte* to, const std::byte* first, const std::byte* second, std::size_t bytes) noexcept {
  switch (op) {
    case Op::sum: return each<T>(to, first, second, bytes, modulo<T>(std::plus()));
    case Op::product: return each<T>(to, first, second, bytes, modulo<T>(std::multiplies()));
    case Op::min: return each<T>(to, first, second, bytes, better<T>(std::less()));
    case Op::max: return each<T>(to, first, second, bytes, better<T>(std::greater()));
    case Op::replace: return;
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor: break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == Op::bit_and) return each<T>(to, first, second, bytes, std::bit_and());
    if (op == Op::bit_or) return each<T>(to, first, second, bytes, std::bit_or());
    each<T>(to, first, second, bytes, std::bit_xor());
  }
}

// IEEE 754 binary16: 1 bit of sign, 5 of exponent, 10 of fraction.

float from_half(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t exponent = (half >> 10U) & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {  // zero and subnormal numbers: fraction * 2^-24
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23U | fraction << 13U);
}

std::uint16_t to_half(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > 0x7F80'0000U) return sign | 0x7E00U | static_cast<std::uint16_t>((magnitude >> 13U) & 0x3FFU);
  if (magnitude >= 0x4780'0000U) return sign | 0x7C00U;  // 2^16 and more
  if (magnitude < 0x3880'0000U) {                        // below 2^-14: the nearest multiple of 2^-24
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return sign | static_cast<std::uint16_t>(std::nearbyint(scaled));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13U) & 1U);
  return sign | static_cast<std::uint16_t>((rounded - ((127 - 15) << 23U)) >> 13U);  // may carry into infinity
}

// bfloat16: the upper half of a float32.

float from_bfloat(std::uint16_t half) noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16U); }

std::uint16_t to_bfloat(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

}  // namespace

bool is_narrow(Number number) noexcept { return number == Number::float16 || number == Number::bfloat16; }

bool combines(Op op, Number number) noexcept {
  const bool bits = op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor;
  const bool integer =
      number == Number::int32 || number == Number::uint32 || number == Number::int64 || number == Number::uint64;
  return op != Op::replace && (integer || !bits);
}

void combine(Op op, Number number, std::byte* to, const std::byte* first, const std::byte* second,
             std::size_t bytes) noexcept {
  switch (number) {
    case Number::int32: return combine_as<std::int32_t>(op, to, first, second, bytes);
    case Number::uint32: return combine_as<std::uint32_t>(op, to, first, second, bytes);
    case Number::int64: return combine_as<std::int64_t>(op, to, first, second, bytes);
    case Number::uint64: return combine_as<std::uint64_t>(op, to, first, second, bytes);
    case Number::float16:
    case Number::bfloat16:
    case Number::float32: return combine_as<float>(op, to, first, second, bytes);
    case Number::float64: return combine_as<double>(op, to, first, second, bytes);
  }
}

void widen(Number from, float* to, const std::byte* narrow, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const auto half = load<std::uint16_t>(narrow + i * sizeof(std::uint16_t));
    to[i] = from == Number::float16 ? from_half(half) : from_bfloat(half);
  }
}

void narrow(Number to, std::byte* narrow, const float* from, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t half = to == Number::float16 ? to_half(from[i]) : to_bfloat(from[i]);
    std::memcpy(narrow + i * sizeof half, &half, sizeof half);
  }
}

}  // namespace sluice::collectives
