// SPDX-License-Identifier: Apache-2.0
// Sums of arrays by slices, for the bench `slices`: each rank sums a slice of all arrays, in memory that all ranks map.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

/// A part of the numbers of an array.
struct NumberSlice {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// The slice of one of `places` ranks. Slices begin at whole cache lines; the last ones may be shorter than the others,
/// or empty.
inline NumberSlice slice_of(std::size_t place, std::size_t places, std::size_t numbers) {
  constexpr std::size_t kNumbersOfLine = 64 / sizeof(double);
  const std::size_t lines = (numbers + kNumbersOfLine - 1) / kNumbersOfLine;
  const std::size_t most = (lines + places - 1) / places * kNumbersOfLine;
  const std::size_t begin = std::min(place * most, numbers);
  return {begin, std::min(most, numbers - begin)};
}

/// A rank's array: what it adds, and where the sum is to be.
struct SummedArray {
  std::span<const double> from;
  std::span<double> to;
};

/// Sums a slice of all arrays, in their order, and writes it to each of them.
inline void sum_slice(std::span<const SummedArray> arrays, NumberSlice slice) {
  constexpr std::size_t kBlock = 512;  // numbers: they stay in the first cache until all arrays have them
  const std::size_t end = slice.begin + slice.count;
  for (std::size_t at = slice.begin; at < end; at += kBlock) {
    const std::size_t count = std::min(kBlock, end - at);
    double* const sums = &arrays.front().to[at];
    std::copy_n(&arrays.front().from[at], count, sums);
    for (const SummedArray& array : arrays.subspan(1)) {
      const double* const from = &array.from[at];
      for (std::size_t i = 0; i < count; ++i) sums[i] += from[i];
    }
    for (const SummedArray& array : arrays.subspan(1)) std::memcpy(&array.to[at], sums, count * sizeof(double));
  }
}

/// The numbers of array `place`. All their sums are exact.
inline double number_to_sum(std::size_t place, std::size_t i) {
  return static_cast<double>(place + 1) * static_cast<double>(i % 1000 + 1);
}

/// @throws std::runtime_error if they are not the sums of so many arrays
inline void expect_sums(std::span<const double> sums, std::size_t arrays) {
  const std::size_t of_places = arrays * (arrays + 1) / 2;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i] != static_cast<double>(of_places) * number_to_sum(0, i))
      throw std::runtime_error("a sum of slices is wrong at number " + std::to_string(i));
  }
}

}  // namespace bench
