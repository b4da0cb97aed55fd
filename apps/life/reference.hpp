// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/life/world.hpp"

#include <vector>

namespace life {

/// The whole world after so many generations, row by row, computed on one thread by plain loops without blocks, halos
/// and Kokkos: the reference for every parallel run.
std::vector<Cell> live_serially(const World& world, Index generations);

}  // namespace life
