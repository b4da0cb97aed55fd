// SPDX-License-Identifier: Apache-2.0
// The sizes of an alltoall of uneven blocks, which all ranks know.
#pragma once

#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>

namespace bench {

/// Bytes from one rank to another: random, but the same in each run; whole doubles, from none to twice `mean`.
inline std::size_t uneven_bytes(sluice::Rank from, sluice::Rank to, std::size_t mean) {
  constexpr std::size_t kUnevenSteps = 8;
  constexpr std::size_t kWholeDouble = sizeof(double);
  // Knuth, The Art of Computer Programming 6.4: multiplicative hashing.
  const std::uint64_t pair = static_cast<std::uint64_t>(from) * 1009 + static_cast<std::uint64_t>(to) + 1;
  const std::size_t step = (pair * 0x9E3779B97F4A7C15U >> 40U) % (kUnevenSteps + 1);
  return (2 * mean * step / kUnevenSteps + kWholeDouble - 1) / kWholeDouble * kWholeDouble;
}

/// From `rank` to all ranks below `end`, or from these to it.
inline std::size_t uneven_sent(sluice::Rank rank, sluice::Rank end, std::size_t mean) {
  std::size_t sum = 0;
  for (sluice::Rank to = 0; to < end; ++to) sum += uneven_bytes(rank, to, mean);
  return sum;
}
inline std::size_t uneven_received(sluice::Rank rank, sluice::Rank end, std::size_t mean) {
  std::size_t sum = 0;
  for (sluice::Rank from = 0; from < end; ++from) sum += uneven_bytes(from, rank, mean);
  return sum;
}

}  // namespace bench
