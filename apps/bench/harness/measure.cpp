// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/measure.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace bench {
namespace {

// A unit that takes less than this is not timed by itself. Reading the clock takes about 20 ns, a fiftieth of it.
constexpr double kMinSampleNs = 1000;
constexpr long kBatchOfShortUnits = 100;

constexpr double kRoundNs = 10e6;
constexpr double kEstimateNs = 2e6;
constexpr long kMaxUnits = 20000;  // of a round
constexpr long kMinSamples = 3;    // of a round

// The units of a batch, the same for all contenders. The slowest contender decides how many fill a round: kernels that
// wait for each other may get the GPU in time slices only, and then a unit takes milliseconds.
long units_of_batch(const Budget& budget, std::span<const double> unit_ns, long period) {
  const auto [shortest, longest] = std::ranges::minmax(unit_ns);
  const long fill_round = std::max(std::lround(kRoundNs / longest), 1L);
  const long units = budget.batch > 0          ? std::min(budget.batch, fill_round)
                     : shortest < kMinSampleNs ? kBatchOfShortUnits
                                               : 1;
  const long most = budget.iterations > 0 ? budget.iterations : units + period;
  return std::max(std::min((units + period - 1) / period, most / period), 1L) * period;
}

// The number of samples in a round.
long samples_of_round(const Budget& budget, long batch, double unit_ns) {
  if (budget.iterations > 0) return std::max(budget.iterations / batch, 1L);
  const double units = std::clamp(kRoundNs / unit_ns, 1.0, static_cast<double>(kMaxUnits));
  return std::max(std::lround(units / static_cast<double>(batch)), kMinSamples);
}

std::vector<double> run_round(Contender& contender, long batch, long samples) {
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(samples));
  for (long i = 0; i < samples; ++i) times.push_back(contender.run(batch) / static_cast<double>(batch));
  return times;
}

bool measures(int rank, int pairs) { return rank % 2 == 0 && rank < 2 * pairs; }

// Collects the samples of all measuring ranks on rank 0. If only rank 0 measures, no message is sent.
std::vector<double> pool(Team& team, int pairs, std::vector<double> mine) {
  const std::size_t bytes = mine.size() * sizeof(double);
  std::vector<std::size_t> bytes_of;
  for (int rank = 0; rank < team.size; ++rank) bytes_of.push_back(measures(rank, pairs) ? bytes : 0);
  if (!measures(team.rank, pairs)) mine.clear();
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
    // The shortest of three runs counts: the first one causes page faults, and another process may have had the core.
    double taken = std::numeric_limits<double>::max();
    double longest = 0;  // the longest run by the clock, which may take much longer than its measured part
    for (int i = 0; i < 3; ++i) {
      team.collectives.barrier();
      double mine = 0;
      longest = std::max(longest, team.collectives.max(timed([&] { mine = contender.run(count); })));
      taken = std::min(taken, team.collectives.max(team.rank == 0 ? mine : 0.0));
    }
    if (std::max(taken, longest) >= kEstimateNs || count >= kMaxUnits) return taken / static_cast<double>(count);
  }
}

Measurement measure(Team& team, std::span<Entry> entries, const Budget& budget) {
  Measurement measured;
  std::vector<double> unit_ns;
  long period = 1;
  for (const Entry& entry : entries) {
    period = std::lcm(period, entry.contender->period());
    unit_ns.push_back(estimate(team, *entry.contender));
    measured.timings.push_back({entry.name, entry.what, {}});
  }
  measured.batch = units_of_batch(budget, unit_ns, period);
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
