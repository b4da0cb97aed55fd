// SPDX-License-Identifier: Apache-2.0
// The table of waits: which rank waits for which, and which of them owes something. Functions of their arguments alone.
#pragma once

#include <string>
#include <vector>

#include "base/waits.hpp"

namespace sluice::base {

/// Names the end that owes what the wait lacks: "rank 0 holds epoch 1 of tag 7 and has not released it".
std::string who_owes(const WaitRecord& wait);

/// A cycle of ranks that wait for each other, from its lowest rank on, for each group of ranks that has one: {0, 1, 2}
/// if 0 waits for 1, 1 for 2 and 2 for 0.
std::vector<std::vector<int>> cycles_of(const std::vector<WaitRecord>& waits);

/// Returns the lines of the table, those first that name the rank to look at. Empty: nothing has waited for `least`.
/// @param seen  ranks that run, and whose waits are all in `waits`
std::string wait_table(std::vector<WaitRecord> waits, const std::vector<int>& seen, Clock::time_point now,
                       Clock::duration least);

}  // namespace sluice::base
