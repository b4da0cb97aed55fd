// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"

namespace jacobi {

/// Laplace's equation on nx x ny points. The outermost points are the boundary: fixed, or, where the mesh is periodic,
/// copies of the points next to the other side. The (nx - 2) x (ny - 2) points inside are the unknowns.
///
/// Periodic in y alone it is the problem of NVIDIA's multi-gpu-programming-models: a sine along the left and right
/// sides, zero inside. Periodic in x alone it is that problem turned; fixed all around it has zeros above and below.
/// Periodic in both it has no boundary, and starts from waves that flatten.
struct Problem {
  apps::Index nx = 0;
  apps::Index ny = 0;
  bool periodic_x = false;
  bool periodic_y = true;

  /// The unknowns, as cells.
  apps::Mesh mesh() const { return {nx - 2, ny - 2, periodic_x, periodic_y}; }

  /// What point (x, y) of the mesh with its boundary starts as. Fixed points stay that.
  double initial(apps::Index x, apps::Index y) const;
};

}  // namespace jacobi
