// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace bench {

double percentile(std::span<const double> values, double p) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const double place = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

double median(std::span<const double> values) { return percentile(values, 0.5); }

std::vector<double> medians(const Rounds& rounds) {
  std::vector<double> of_rounds;
  for (const auto& samples : rounds) of_rounds.push_back(median(samples));
  return of_rounds;
}

Summary summarise(const Rounds& rounds) {
  std::vector<double> all;
  for (const auto& samples : rounds) all.insert(all.end(), samples.begin(), samples.end());
  return {median(medians(rounds)), percentile(all, 0.1), percentile(all, 0.99), all.size()};
}

std::vector<double> ratios(const Rounds& theirs, const Rounds& ours) {
  std::vector<double> quotients = medians(theirs);
  const std::vector<double> divisors = medians(ours);
  for (std::size_t round = 0; round < quotients.size(); ++round) quotients[round] /= divisors[round];
  return quotients;
}

std::optional<Interval> interval_of_median(std::span<const double> values) {
  if (values.size() < kMinForInterval) return std::nullopt;
  constexpr int kResamples = 2000;
  std::mt19937_64 random(kResamples);  // seeded with any constant
  std::vector<double> sample(values.size());
  std::vector<double> medians_of_samples;
  for (int i = 0; i < kResamples; ++i) {
    for (double& value : sample) value = values[random() % values.size()];
    medians_of_samples.push_back(median(sample));
  }
  return Interval{percentile(medians_of_samples, 0.025), percentile(medians_of_samples, 0.975)};
}

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds: return "holds";
    case Verdict::fails: return "fails";
    case Verdict::inconclusive: break;
  }
  return "inconclusive";
}

Verdict judge(const std::optional<Interval>& interval, double goal) {
  if (interval && interval->low >= goal) return Verdict::holds;
  if (interval && interval->high < goal) return Verdict::fails;
  return Verdict::inconclusive;
}

double drift(const Rounds& rounds) {
  const std::vector<double> of_rounds = medians(rounds);
  return percentile(of_rounds, 0.9) / percentile(of_rounds, 0.1) - 1;
}

double growth_exponent(std::span<const double> sizes, std::span<const double> values) {
  std::vector<double> x;
  std::vector<double> y;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] <= 0) continue;
    x.push_back(std::log(sizes[i]));
    y.push_back(std::log(values[i]));
  }
  const auto mean = [](const std::vector<double>& all) {
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  };
  if (x.size() < 2) return 0;
  double above = 0;
  double below = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    above += (x[i] - mean(x)) * (y[i] - mean(y));
    below += (x[i] - mean(x)) * (x[i] - mean(x));
  }
  return below == 0 ? 0 : above / below;
}

std::vector<int> drifted_rounds(const Rounds& floor) {
  const std::vector<double> of_rounds = medians(floor);
  const double usual = median(of_rounds);
  std::vector<int> drifted;
  for (std::size_t round = 0; round < of_rounds.size(); ++round) {
    if (std::abs(of_rounds[round] - usual) > kDriftAllowed * usual) drifted.push_back(static_cast<int>(round) + 1);
  }
  return drifted;
}

}  // namespace bench
