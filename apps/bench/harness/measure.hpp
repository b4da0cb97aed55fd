// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/harness/statistics.hpp"
#include "apps/common/collectives.hpp"

#include <span>
#include <string>
#include <vector>

namespace bench {

/// The ranks that measure together.
struct Team {
  int rank;
  int size;
  apps::Collectives& collectives;
};

/// The amount of measuring.
struct Budget {
  int rounds = 20;
  long iterations = 0;  ///< units of a round, in whole samples; 0: as many as fill about 10 ms
  long batch = 0;       ///< at most so many units of a sample, as many as fill a round; 0: one, or many if one is short
};

/// The times of one contender, in nanoseconds per unit; on rank 0.
struct Timing {
  std::string name;
  std::string what;
  Rounds rounds;
};

struct Measurement {
  long batch = 1;               ///< units of a sample, the same for all contenders
  std::vector<Timing> timings;  ///< in the order of the entries
};

/// Runs every entry `budget.rounds` times, one after the other and in the opposite order every second round, and
/// returns their times. All ranks call it with the same entries; after it, no message of them is in flight.
Measurement measure(Team& team, std::span<Entry> entries, const Budget& budget);

/// Nanoseconds per unit in a short run: the time of rank 0, the same on all ranks.
double estimate(Team& team, Contender& contender);

/// "iteration", or the number of iterations whose mean is a sample.
std::string sample_text(long batch);

}  // namespace bench
