// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

#include <array>

namespace faces {

using apps::Index;

/// Blocks of n x n x n nodes, one per rank, in a periodic box. Neighbouring blocks share the nodes on their faces,
/// edges and corners: each block has a copy.
struct Problem {
  std::array<int, 3> grid = {1, 1, 1};  ///< blocks along z, y and x
  Index nodes = 0;                      ///< of a block along each axis, 2 or more

  /// All copies, side by side.
  apps::Mesh mesh() const {
    return {.nx = grid[2] * nodes,
            .ny = grid[1] * nodes,
            .nz = grid[0] * nodes,
            .periodic_x = true,
            .periodic_y = true,
            .periodic_z = true};
  }

  /// The initial value of a copy, different for each.
  double initial(Index x, Index y, Index z) const;
};

/// As many blocks as ranks, in a grid that is as close to a cube as possible; more of them along z than along x.
Problem make_problem(int ranks, Index nodes);

}  // namespace faces
