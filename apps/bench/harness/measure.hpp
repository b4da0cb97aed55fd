// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/harness/statistics.hpp"
#include "apps/common/host_collectives.hpp"

#include <span>
#include <string>
#include <vector>

namespace bench {

/// This rank and the ranks that measure with it.
struct Team {
  int rank;
  int size;
  apps::HostCollectives& collectives;
};

/// How much is measured. A contender runs its unit (a round trip, a window, a step) again and again. A sample is the
/// mean time of the units of one batch; a round is one turn of a contender, with several samples.
struct Budget {
  int rounds = 20;
  /// The units of a round, without those that fill no whole batch; 0: as many as take about 10 ms.
  long iterations = 0;
  /// The most units of a batch. A batch is smaller if it would take longer than a round of 10 ms. 0: a batch is one
  /// unit, or 100 units if one takes less than a microsecond. Then as many more as the longest period needs.
  long batch = 0;
};

/// The samples of one contender, on rank 0.
struct Timing {
  std::string name;
  std::string what;
  Rounds rounds;  ///< nanoseconds per unit
};

struct Measurement {
  long batch = 1;               ///< the units of a sample, the same for all contenders
  std::vector<Timing> timings;  ///< in the order of the entries
};

/// Measures the entries in turns: in each round every entry runs once, in the opposite order every second round. All
/// ranks call it with the same entries. When it returns, no message is in flight.
Measurement measure(Team& team, std::span<Entry> entries, const Budget& budget);

/// Measures a contender shortly. @returns the nanoseconds per unit at rank 0, on all ranks
double estimate(Team& team, Contender& contender);

/// The meaning of a sample, for people: "iteration", or "batch mean of 100".
std::string sample_text(long batch);

}  // namespace bench
