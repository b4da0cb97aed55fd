// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/statistics.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <vector>

namespace {

using bench::Rounds;

TEST(Percentile, interpolates_between_neighbours) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(bench::percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(bench::percentile(values, 1), 4);
  EXPECT_DOUBLE_EQ(bench::percentile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(bench::percentile(values, 0.1), 1.3);
}

TEST(Percentile, of_one_value_is_that_value) {
  const std::vector<double> values = {7};
  EXPECT_DOUBLE_EQ(bench::percentile(values, 0.99), 7);
  EXPECT_DOUBLE_EQ(bench::median(values), 7);
}

TEST(Summary, p50_counts_rounds_and_not_samples) {
  // The disturbed round has most of the samples.
  const Rounds rounds = {{1, 1}, {2, 2}, {90, 90, 90, 90, 90, 90, 90, 90, 90}};
  const bench::Summary summary = bench::summarise(rounds);
  EXPECT_DOUBLE_EQ(summary.p50, 2);
  EXPECT_DOUBLE_EQ(summary.p99, 90);
  EXPECT_EQ(summary.samples, 13U);
}

TEST(Growth, is_the_exponent_of_the_power_that_fits) {
  const std::vector<double> sizes{500, 1000, 2000, 4000};
  const std::vector<double> linear{10, 20, 40, 80};
  const std::vector<double> square{1, 4, 16, 64};
  const std::vector<double> same{3, 3, 3, 3};
  EXPECT_NEAR(bench::growth_exponent(sizes, linear), 1, 1e-9);
  EXPECT_NEAR(bench::growth_exponent(sizes, square), 2, 1e-9);
  EXPECT_NEAR(bench::growth_exponent(sizes, same), 0, 1e-9);
}

TEST(Growth, leaves_out_what_is_not_positive) {
  const std::vector<double> sizes{1, 2, 4};
  const std::vector<double> values{0, 5, 10};
  EXPECT_NEAR(bench::growth_exponent(sizes, values), 1, 1e-9);
}

TEST(Ratio, compares_within_a_round_only) {
  // The machine slows down threefold half way; theirs takes twice as long as ours all the time.
  const Rounds ours = {{1}, {1}, {3}, {3}};
  const Rounds theirs = {{2}, {2}, {6}, {6}};
  EXPECT_EQ(bench::ratios(theirs, ours), (std::vector<double>{2, 2, 2, 2}));
}

TEST(Ratio, is_above_one_where_the_rival_takes_longer) {
  EXPECT_EQ(bench::ratios({{3, 3, 3}}, {{2, 2, 2}}), (std::vector<double>{1.5}));
  EXPECT_EQ(bench::ratios({{1, 1, 1}}, {{2, 2, 2}}), (std::vector<double>{0.5}));
}

std::vector<double> one_to(int last) {
  std::vector<double> values(static_cast<std::size_t>(last));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Interval, of_the_median_is_that_of_the_bootstrap) {
  // By the binomial distribution, the 6th and the 16th of 21 values enclose the median with 97 % confidence.
  const auto interval = bench::interval_of_median(one_to(21));
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->low, 6.5, 1);
  EXPECT_NEAR(interval->high, 15.5, 1);
}

TEST(Interval, is_the_same_for_the_same_values) {
  const auto once = bench::interval_of_median(one_to(501));
  const auto again = bench::interval_of_median(one_to(501));
  EXPECT_EQ(once->low, again->low);
  EXPECT_EQ(once->high, again->high);
}

TEST(Interval, is_not_moved_by_a_few_disturbed_rounds) {
  std::vector<double> values(20, 1.0);
  values[3] = values[11] = 50;
  const auto interval = bench::interval_of_median(values);
  EXPECT_DOUBLE_EQ(interval->low, 1);
  EXPECT_DOUBLE_EQ(interval->high, 1);
}

TEST(Interval, of_few_rounds_is_not_known) {
  EXPECT_FALSE(bench::interval_of_median(one_to(5)));
  EXPECT_TRUE(bench::interval_of_median(one_to(6)));
}

TEST(Verdict, depends_on_the_ends_of_the_interval) {
  using bench::Verdict;
  const bench::Interval interval{0.8, 0.9};
  EXPECT_EQ(bench::judge(interval, 0.7), Verdict::holds);
  EXPECT_EQ(bench::judge(interval, 0.8), Verdict::holds);
  EXPECT_EQ(bench::judge(interval, 0.85), Verdict::inconclusive);
  EXPECT_EQ(bench::judge(interval, 0.9), Verdict::inconclusive);
  EXPECT_EQ(bench::judge(interval, 0.95), Verdict::fails);
  EXPECT_EQ(bench::judge(std::nullopt, 0.1), Verdict::inconclusive);
  EXPECT_STREQ(bench::name(Verdict::fails), "fails");
}

TEST(Drift, is_zero_for_a_steady_machine) { EXPECT_DOUBLE_EQ(bench::drift({{5, 5}, {5, 5}, {5, 5}}), 0); }

TEST(Drift, does_not_count_one_disturbed_round_in_twenty) {
  Rounds rounds(20, {10.0});
  rounds[7] = {1000};
  EXPECT_LT(bench::drift(rounds), bench::kDriftAllowed);
}

TEST(Drift, tells_when_the_machine_changes_half_way) {
  Rounds rounds(20, {10.0});
  for (std::size_t round = 10; round < 20; ++round) rounds[round] = {15};
  EXPECT_DOUBLE_EQ(bench::drift(rounds), 0.5);
}

TEST(Drift, marks_the_rounds_that_differ) {
  Rounds rounds(20, {10.0});
  EXPECT_TRUE(bench::drifted_rounds(rounds).empty());
  rounds[2] = {7.9};
  rounds[6] = {11.9};
  rounds[19] = {12.1};
  EXPECT_EQ(bench::drifted_rounds(rounds), (std::vector<int>{3, 20}));
}

}  // namespace
