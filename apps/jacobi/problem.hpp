// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"

namespace jacobi {

/// Laplace's equation on nx x ny points, or nx x ny x nz. The outermost points are the boundary: fixed, or, if the mesh
/// is periodic, copies of the points next to the other side. The points inside are the unknowns.
///
/// In two dimensions, periodic in y alone it is the problem of NVIDIA's multi-gpu-programming-models: a sine along the
/// left and right sides, zero inside. Periodic in x alone it is that problem turned; fixed all around it has zeros
/// above and below. Periodic in both it has no boundary, and starts from waves that flatten. In three dimensions it is
/// fixed all around: a sine of y times one of z at both ends of x, zero at the other sides.
struct Problem {
  apps::Index nx = 0;
  apps::Index ny = 0;
  apps::Index nz = 1;  ///< 1: two dimensions
  bool periodic_x = false;
  bool periodic_y = true;

  bool has_planes() const { return nz > 1; }
  /// The unknowns, as cells.
  apps::Mesh mesh() const {
    return {.nx = nx - 2,
            .ny = ny - 2,
            .nz = has_planes() ? nz - 2 : 1,
            .periodic_x = periodic_x,
            .periodic_y = periodic_y};
  }

  /// The initial value of point (x, y, z) of the mesh with its boundary; in two dimensions z is 0. Fixed points keep
  /// it.
  double initial(apps::Index x, apps::Index y, apps::Index z = 0) const;
};

}  // namespace jacobi
