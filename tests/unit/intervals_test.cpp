// SPDX-License-Identifier: Apache-2.0
// Sets of bytes, against one flag for each byte.
#include "segments/intervals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>

namespace {

using sluice::segments::IntervalSet;

TEST(Intervals, merge_those_that_adjoin) {
  IntervalSet set;
  set.add({0, 4});
  set.add({8, 4});
  EXPECT_EQ(set.intervals(), 2U);
  EXPECT_FALSE(set.contains({0, 12}));
  set.add({4, 4});
  EXPECT_EQ(set.intervals(), 1U);
  EXPECT_TRUE(set.contains({0, 12}));
  EXPECT_FALSE(set.contains({0, 13}));
}

TEST(Intervals, are_cut_where_bytes_are_removed) {
  IntervalSet set;
  set.add({0, 12});
  set.remove({4, 4});
  EXPECT_EQ(set.intervals(), 2U);
  EXPECT_FALSE(set.intersects({4, 4}));
  EXPECT_TRUE(set.intersects({3, 2}));
  EXPECT_TRUE(set.contains({8, 4}));
  EXPECT_EQ(set.first().offset, 0U);
  EXPECT_EQ(set.first().count, 4U);
}

TEST(Intervals, of_no_bytes_are_everywhere_and_meet_nothing) {
  IntervalSet set;
  EXPECT_TRUE(set.contains({5, 0}));
  EXPECT_FALSE(set.intersects({5, 0}));
  set.add({5, 0});
  EXPECT_TRUE(set.empty());
  set.add({0, 10});
  EXPECT_FALSE(set.intersects({5, 0}));
  set.remove({5, 0});
  EXPECT_EQ(set.intervals(), 1U);
}

TEST(Intervals, are_those_of_a_flag_for_each_byte) {
  constexpr std::size_t kOfFlags = 257;
  constexpr int kOfSteps = 1'000'000;
  std::mt19937 random(20261128);
  std::array<bool, kOfFlags> flags{};
  IntervalSet set;
  for (int step = 0; step < kOfSteps; ++step) {
    const std::size_t offset = random() % kOfFlags;
    const std::size_t count = random() % std::min<std::size_t>(kOfFlags - offset + 1, 1 + random() % 40);
    const sluice::segments::Range range{offset, count};
    const auto first = flags.begin() + static_cast<std::ptrdiff_t>(offset);
    const auto last = first + static_cast<std::ptrdiff_t>(count);
    ASSERT_EQ(set.contains(range), std::all_of(first, last, [](bool flag) { return flag; })) << step;
    ASSERT_EQ(set.intersects(range), std::any_of(first, last, [](bool flag) { return flag; })) << step;
    const bool adds = random() % 2 == 0;
    std::fill(first, last, adds);
    adds ? set.add(range) : set.remove(range);
    if (step % 64 != 0) continue;
    std::size_t intervals = 0;
    for (std::size_t i = 0; i < kOfFlags; ++i) intervals += flags[i] && (i == 0 || !flags[i - 1]);
    ASSERT_EQ(set.intervals(), intervals) << step;
  }
}

}  // namespace
