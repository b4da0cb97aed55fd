// SPDX-License-Identifier: Apache-2.0
// The operations of reductions on numbers in memory.
#pragma once

#include <sluice/ops.hpp>

#include <cstddef>

namespace sluice::collectives {

/// True if a reduction can combine numbers so: all but `replace`, and bits of floating-point numbers.
bool combines(Op op, Number number) noexcept;
/// True for float16 and bfloat16, which are combined as float32.
bool is_narrow(Number number) noexcept;

/// Bytes of a number.
constexpr std::size_t size_of(Number number) noexcept {
  switch (number) {
    case Number::float16:
    case Number::bfloat16: return 2;
    case Number::int32:
    case Number::uint32:
    case Number::float32: return 4;
    default: return 8;
  }
}

/// to = first op second, number by number. `bytes` of each; `to` may be one of the two. Not for narrow numbers.
void combine(Op op, Number number, std::byte* to, const std::byte* first, const std::byte* second,
             std::size_t bytes) noexcept;
/// Between narrow numbers and `count` float32: `narrow` rounds to the nearest, ties to even.
void widen(Number from, float* to, const std::byte* narrow, std::size_t count) noexcept;
void narrow(Number to, std::byte* narrow, const float* from, std::size_t count) noexcept;

}  // namespace sluice::collectives
