// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/measure.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace bench {
namespace {

// Reading the clock takes about 20 ns: less than a fiftieth of anything that is timed by itself.
constexpr double kShortestSampleNs = 1000;
constexpr long kBatch = 100;

constexpr double kRoundNs = 10e6;
constexpr double kEstimateNs = 2e6;
constexpr long kMostUnits = 20000;
constexpr long kFewestSamples = 3;

// Units of a sample, the same for all contenders. A round is no longer than the slowest of them needs: kernels that
// wait for each other may have to wait for time slices.
long units_of_sample(const Budget& budget, std::span<const double> unit_ns) {
  const auto [shortest, longest] = std::ranges::minmax(unit_ns);
  const long fill_round = std::max(std::lround(kRoundNs / longest), 1L);
  const long units = budget.batch > 0 ? std::min(budget.batch, fill_round) : shortest < kShortestSampleNs ? kBatch : 1;
  return budget.iterations > 0 ? std::min(units, budget.iterations) : units;
}

// Number of samples in a round. Requested units that fill no whole sample are left out.
long samples_of_round(const Budget& budget, long batch, double unit_ns) {
  if (budget.iterations > 0) return budget.iterations / batch;
  const double units = std::clamp(kRoundNs / unit_ns, 1.0, static_cast<double>(kMostUnits));
  return std::max(std::lround(units / static_cast<double>(batch)), kFewestSamples);
}

std::vector<double> run_round(Contender& contender, long batch, long samples) {
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(samples));
  for (long i = 0; i < samples; ++i) times.push_back(contender.run(batch) / static_cast<double>(batch));
  return times;
}

bool times(int rank, int pairs) { return rank % 2 == 0 && rank < 2 * pairs; }

// Collects the samples of all measuring ranks on rank 0. If only rank 0 measures, as in benches of two ranks, no
// messages are needed.
std::vector<double> pool(Team& team, int pairs, std::vector<double> mine) {
  const std::size_t bytes = mine.size() * sizeof(double);
  std::vector<std::size_t> bytes_of;
  for (int rank = 0; rank < team.size; ++rank) bytes_of.push_back(times(rank, pairs) ? bytes : 0);
  if (!times(team.rank, pairs)) mine.clear();
  std::vector<double> all;
  team.collectives.gather(std::as_bytes(std::span(mine)), bytes_of, [&](int, std::span<const std::byte> part) {
    const auto* values = reinterpret_cast<const double*>(part.data());
    const std::size_t count = part.size() / sizeof(double);
    all.insert(all.end(), values, values + count);
  });
  return all;
}

}  // namespace

double estimate(Team& team, Contender& contender) {
  for (long count = 1;; count *= 4) {
    // The shortest of three: another process may have had the core, and the first run touches memory for the first
    // time.
    double taken = std::numeric_limits<double>::max();
    double longest = 0;  // by the clock, which may be much more than the measured time
    for (int i = 0; i < 3; ++i) {
      team.collectives.barrier();
      double mine = 0;
      longest = std::max(longest, team.collectives.max(timed([&] { mine = contender.run(count); })));
      taken = std::min(taken, team.collectives.max(team.rank == 0 ? mine : 0.0));
    }
    if (std::max(taken, longest) >= kEstimateNs || count >= kMostUnits) return taken / static_cast<double>(count);
  }
}

Measurement measure(Team& team, std::span<Entry> entries, const Budget& budget) {
  Measurement measured;
  std::vector<double> unit_ns;
  for (const Entry& entry : entries) {
    unit_ns.push_back(estimate(team, *entry.contender));
    measured.timings.push_back({entry.name, entry.what, {}});
  }
  measured.batch = units_of_sample(budget, unit_ns);
  for (int round = 0; round < budget.rounds; ++round) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::size_t turn = round % 2 == 0 ? i : entries.size() - 1 - i;
      team.collectives.barrier();
      const long samples = samples_of_round(budget, measured.batch, unit_ns[turn]);
      measured.timings[turn].rounds.push_back(
          pool(team, entries[turn].pairs, run_round(*entries[turn].contender, measured.batch, samples)));
    }
  }
  team.collectives.barrier();
  return measured;
}

std::string sample_text(long batch) { return batch == 1 ? "iteration" : "batch mean of " + std::to_string(batch); }

}  // namespace bench
