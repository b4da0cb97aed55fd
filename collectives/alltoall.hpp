// SPDX-License-Identifier: Apache-2.0
// The algorithms of alltoall that know nodes.
#pragma once

#include "collectives/routes.hpp"
#include "collectives/topology.hpp"

namespace sluice::collectives {

/// In steps: in step i each rank sends to the one i after it, and waits for what comes from the one i before it; so
/// many steps are under way at a time.
void stepwise_alltoall(Schedule& schedule, Place from, Place to, std::size_t bytes, int under_way);

/// A leader of each set collects all blocks of its set; leaders exchange; they distribute.
Route by_leaders(const Sets& sets);
/// Ranks at one place of all sets exchange what is for whole sets; then the ranks of a set exchange.
Route by_places(const Sets& sets);
/// As `by_leaders` for groups, but leaders exchange by their places in nodes.
Route by_leaders_and_places(const Sets& groups, const Sets& nodes);

}  // namespace sluice::collectives
