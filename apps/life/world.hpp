// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"
#include "apps/life/pattern.hpp"

#include <cstdint>
#include <vector>

namespace life {

/// A torus and its live cells at the start.
struct World {
  Index nx = 0;
  Index ny = 0;
  Rule rule;
  std::vector<Point> cells;  ///< live cells; a place beyond an edge wraps around
  double density = 0;        ///< the fraction of all cells that is made alive at random
  std::uint64_t seed = 0;

  /// Number of updates of a cell in so many generations.
  double updates(Index generations) const {
    return static_cast<double>(nx) * static_cast<double>(ny) * static_cast<double>(generations);
  }

  apps::Mesh mesh() const { return {.nx = nx, .ny = ny, .nz = 1, .periodic_x = true, .periodic_y = true}; }
};

/// Sets the cells of one box of the world; `origin` is the box's first cell. Every cell has a random number of its own,
/// so that the world is the same for any division.
void populate(const World& world, const apps::Box& box, Cell* origin, Index pitch);

}  // namespace life
