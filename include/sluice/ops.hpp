// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice {

/// Operation of an atomic on a number in memory and an operand.
enum class Op : std::uint8_t {
  sum,      ///< integers modulo 2^32 or 2^64
  min,      ///< the smaller; the number in memory if one of them is NaN
  max,      ///< the larger; the number in memory if one of them is NaN
  replace,  ///< the operand
  bit_and,  ///< of integers alone
  bit_or,   ///< of integers alone
  bit_xor   ///< of integers alone
};

/// The type of the numbers that an atomic changes.
enum class Number : std::uint8_t { int32, uint32, int64, uint64, float32, float64 };

}  // namespace sluice
