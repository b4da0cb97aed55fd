// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace bench {

/// The value below which a fraction `p` in [0, 1] of the values lies, interpolated between neighbours. The list must
/// not be empty.
double percentile(std::span<const double> values, double p);
double median(std::span<const double> values);

/// The median of the rounds, and the spread of all samples.
struct Summary {
  double p50 = 0;  ///< median over rounds of the rounds' medians: a disturbed round counts once
  double p10 = 0;  ///< of all samples
  double p99 = 0;  ///< of all samples
  std::size_t samples = 0;
};

/// Samples by round. No round is empty.
using Rounds = std::vector<std::vector<double>>;

std::vector<double> medians(const Rounds& rounds);
Summary summarise(const Rounds& rounds);

/// Median over rounds of theirs / ours. The medians of each round are compared with each other only, because a slow
/// change of the machine changes both.
double ratio(const Rounds& theirs, const Rounds& ours);

/// By how much the rounds' medians differ, as a fraction of the smaller: between the 10th and the 90th percentile of
/// the rounds, so that one disturbed round in ten does not count.
double drift(const Rounds& rounds);

/// A run whose floor drifts by more than this says so.
inline constexpr double kDriftAllowed = 0.2;

}  // namespace bench
