// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

namespace heat {

using apps::Index;

enum class Start { sine, spots };

/// The heat equation in a periodic box, in time steps of `fourier` (diffusivity x time step / square of a cell's side).
/// Cells are 1 wide and have their values in the middle.
struct Problem {
  Index nx = 0;
  Index ny = 0;
  Index nz = 1;  ///< 1: two dimensions
  double fourier = 0;
  Start start = Start::sine;

  bool has_planes() const { return nz > 1; }
  apps::Mesh mesh() const {
    return {.nx = nx, .ny = ny, .nz = nz, .periodic_x = true, .periodic_y = true, .periodic_z = has_planes()};
  }

  /// The initial value of cell (x, y, z). A sine: 1 and a product of sines with one, two and one periods along x, y and
  /// z. Spots: 1 in some balls, else 0.
  double initial(Index x, Index y, Index z) const;

  /// The exact solution of the heat equation after so many steps from a start as a sine.
  double exact(Index x, Index y, Index z, Index steps) const;

  /// This box in cells twice as wide; a quarter of the steps then takes the same time. Sides must be even.
  Problem coarser() const { return {nx / 2, ny / 2, has_planes() ? nz / 2 : 1, fourier, start}; }
};

}  // namespace heat
