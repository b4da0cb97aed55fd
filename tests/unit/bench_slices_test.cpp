// SPDX-License-Identifier: Apache-2.0
// The sums of the bench `slices`.
#include "apps/bench/harness/slices.hpp"

#include "apps/bench/ours/ours.hpp"

#include <sluice/run.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace bench {
namespace {

TEST(Slices, have_every_number_once_and_begin_at_lines) {
  for (const std::size_t numbers : {0, 1, 8, 9, 17, 1000, 1024}) {
    for (std::size_t places = 1; places <= 5; ++places) {
      std::size_t next = 0;
      for (std::size_t place = 0; place < places; ++place) {
        const NumberSlice slice = slice_of(place, places, numbers);
        EXPECT_EQ(slice.begin, next) << numbers << " numbers, place " << place << " of " << places;
        EXPECT_TRUE(slice.count == 0 || slice.begin % 8 == 0);
        next += slice.count;
      }
      EXPECT_EQ(next, numbers) << places;
    }
  }
}

constexpr std::size_t kSummedArrays = 3;
constexpr std::size_t kSummedNumbers = 1500;  // more than a block, and more than the numbers that repeat

/// The sums of each array, by so many slices of which those of `places` are summed.
std::vector<std::vector<double>> sums_by_slices(const std::vector<std::size_t>& places, std::size_t slices) {
  std::vector<std::vector<double>> from(kSummedArrays, std::vector<double>(kSummedNumbers));
  std::vector<std::vector<double>> to(kSummedArrays, std::vector<double>(kSummedNumbers, -1));
  std::vector<SummedArray> arrays;
  for (std::size_t array = 0; array < kSummedArrays; ++array) {
    for (std::size_t i = 0; i < kSummedNumbers; ++i) from[array][i] = number_to_sum(array, i);
    arrays.push_back({from[array], to[array]});
  }
  for (const std::size_t place : places) sum_slice(arrays, slice_of(place, slices, kSummedNumbers));
  return to;
}

TEST(Slices, that_all_places_sum_are_found_right_in_every_array) {
  for (const auto& sums : sums_by_slices({0, 1, 2}, 3)) EXPECT_NO_THROW(expect_sums(sums, kSummedArrays));
}

TEST(Slices, of_which_one_is_missing_are_found_wrong) {
  for (const auto& sums : sums_by_slices({0, 2}, 3)) EXPECT_THROW(expect_sums(sums, kSummedArrays), std::runtime_error);
}

TEST(Slices, of_too_few_arrays_are_found_wrong) {
  for (const auto& sums : sums_by_slices({0}, 1))
    EXPECT_THROW(expect_sums(sums, kSummedArrays + 1), std::runtime_error);
}

/// Each contender checks its first sums.
int code_of_sums(int ranks, std::size_t bytes, Ours (*make)(const Workload&)) {
  const Options options;
  return sluice::run_threads(ranks, [&](sluice::Context& context) {
    Workload workload{context, options};
    workload.bytes = bytes;
    make(workload).contender->run(20);
  });
}

TEST(Slices, of_memory_that_ranks_map_are_summed) {
  for (const int ranks : {2, 3, 4}) {
    for (const std::size_t bytes : {8, 8192, 65536}) EXPECT_EQ(code_of_sums(ranks, bytes, make_sum_of_slices), 0);
  }
}

TEST(Slices, of_arrays_that_ranks_share_are_summed_by_them_or_their_owners) {
  for (const int ranks : {4, 6}) {
    for (const std::size_t bytes : {8, 8192}) {
      EXPECT_EQ(code_of_sums(ranks, bytes, make_sum_of_shared_slices), 0) << ranks << " ranks, " << bytes << " bytes";
      EXPECT_EQ(code_of_sums(ranks, bytes, make_sum_by_owners), 0) << ranks << " ranks, " << bytes << " bytes";
    }
  }
}

}  // namespace
}  // namespace bench
