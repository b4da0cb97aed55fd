// SPDX-License-Identifier: Apache-2.0
// Closed forms of what an algorithm keeps at a rank. tests/unit/footprint_test.cpp counts the same in the schedules.
#pragma once

#include <cstddef>

#include "collectives/levels.hpp"

namespace sluice::collectives {

/// The most that any one of p ranks has of each of these.
struct Footprint {
  double ends = 0;   ///< ends of channels
  double peers = 0;  ///< ranks at their other ends
  double bytes = 0;  ///< of memory of the collective: landings and sums in between, as they are allocated
};

/// Bytes that Context::allocate takes for so many.
double allocated(std::size_t bytes);

// As `Model` has their times. The numbers of sums have 8 bytes; the result is not in place of what is read.
Footprint dissemination_footprint(int p, int ways);
Footprint binomial_broadcast_footprint(int p, std::size_t bytes);
Footprint level_broadcast_footprint(int p, std::size_t bytes, const Levels& levels);
Footprint shared_broadcast_footprint(int p, std::size_t bytes);
Footprint doubling_allreduce_footprint(int p, std::size_t bytes);
Footprint shared_allreduce_footprint(int p, std::size_t bytes);
/// Allgather, and alltoall.
Footprint puts_footprint(int p, std::size_t bytes);

}  // namespace sluice::collectives
