// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

namespace cg {

using apps::Index;

/// Poisson's equation with two opposite charges in a grounded box: A u = b, where A u is, for each cell, four times
/// (in space: six times) its value less those of its neighbours. Beyond the box u is 0.
struct Problem {
  Index nx = 0;
  Index ny = 0;
  Index nz = 1;  ///< 1: two dimensions

  bool has_planes() const { return nz > 1; }
  apps::Mesh mesh() const { return {.nx = nx, .ny = ny, .nz = nz}; }
  /// The right-hand side, b. Without mirror symmetry, so that a test notices a halo on the wrong side.
  double charge(Index x, Index y, Index z) const;
};

}  // namespace cg
