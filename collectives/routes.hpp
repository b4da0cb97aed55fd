// SPDX-License-Identifier: Apache-2.0
// Alltoall by way of other ranks: blocks that go the same way travel in one message.
#pragma once

#include <functional>
#include <vector>

#include "collectives/schedule.hpp"

namespace sluice::collectives {

/// The ranks that have the block from one rank to another, one after the other: first the source, last the target. The
/// same number for all blocks.
using Route = std::function<std::vector<Rank>(Rank source, Rank target)>;

/// `bytes`: of a block. Blocks that are in a rank's own memory at the end of a round are in the messages of the next.
void routed_alltoall(Schedule& schedule, Place from, Place to, std::size_t bytes, const Route& route);

}  // namespace sluice::collectives
