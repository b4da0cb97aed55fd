// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace bench {

/// The percentile 100 * `p`, with `p` from 0 to 1: the value at that place of the sorted list, interpolated between the
/// two nearest values. The list must not be empty.
double percentile(std::span<const double> values, double p);
double median(std::span<const double> values);

/// The values of one contender, by rounds (see Budget in measure.hpp). No round is empty.
using Rounds = std::vector<std::vector<double>>;

/// The median of each round.
std::vector<double> medians(const Rounds& rounds);

struct Summary {
  double p50 = 0;  ///< the median of the rounds' medians: a disturbed round counts once, however many samples it has
  double p10 = 0;  ///< the 10th percentile of all samples
  double p99 = 0;  ///< the 99th percentile of all samples
  std::size_t samples = 0;
};
Summary summarise(const Rounds& rounds);

/// Their median of each round, divided by our median of the same round. Values of different rounds are not compared:
/// when the machine becomes slower, it does so for both contenders.
std::vector<double> ratios(const Rounds& theirs, const Rounds& ours);

struct Interval {
  double low = 0;
  double high = 0;
};

/// The fewest values whose smallest and largest enclose the median that they are samples of with 95 % confidence.
inline constexpr std::size_t kMinForInterval = 6;

/// The 95 % confidence interval of the median, by the bootstrap (Efron: Bootstrap Methods, 1979; percentiles of the
/// medians of resampled values). The same values always give the same interval. Unset for fewer than kMinForInterval.
std::optional<Interval> interval_of_median(std::span<const double> values);

/// Verdict on a ratio and its goal. `inconclusive`: more or quieter rounds might decide.
enum class Verdict { holds, fails, inconclusive };
const char* name(Verdict verdict);
/// `holds` if the lower end of the interval reaches the goal, `fails` if the upper end does not.
Verdict judge(const std::optional<Interval>& interval, double goal);

/// How much the rounds of one contender differ: the 90th percentile of their medians, divided by the 10th, minus 1. The
/// extreme rounds, one in ten on each side, do not count.
double drift(const Rounds& rounds);

/// The exponent of the power of `sizes` that `values` grow with: the least squares' slope of their logarithms. 1 is
/// linear. Values that are not positive do not count; with fewer than two that do, the exponent is 0.
double growth_exponent(std::span<const double> sizes, std::span<const double> values);

/// The rounds in which a floor drifted, counted from 1: its median of the round differs from its median over all rounds
/// by more than kDriftAllowed of the latter. Other programs have disturbed these rounds. They count like all others.
std::vector<int> drifted_rounds(const Rounds& floor);
inline constexpr double kDriftAllowed = 0.2;

}  // namespace bench
