// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice {

/// Operation on two numbers: of an atomic, on a number in memory and an operand; of a collective.
enum class Op : std::uint8_t {
  sum,      ///< integers modulo 2^32 or 2^64
  min,      ///< the smaller; if one is NaN, an atomic keeps the number in memory, and a collective the NaN
  max,      ///< the larger; NaN as for `min`
  replace,  ///< the operand; of atomics alone
  bit_and,  ///< of integers alone
  bit_or,   ///< of integers alone
  bit_xor,  ///< of integers alone
  product   ///< integers modulo 2^32 or 2^64; of collectives alone
};

/// The type of numbers in memory.
enum class Number : std::uint8_t {
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  float16,  ///< IEEE 754 binary16; of collectives alone
  bfloat16  ///< the upper half of a float32; of collectives alone
};

}  // namespace sluice
