// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

namespace channel_flow {

using apps::Index;

inline constexpr int kComponents = 3;  ///< of the velocity: along x, y and z
inline constexpr double kViscosity = 0.1;
inline constexpr double kForce = 0.01;  ///< along x

/// The velocity at the start, of component 0, 1 or 2 at the lower face of a cell along its axis. It is not free of
/// divergence, and is zero on the walls.
double initial(const apps::Mesh& mesh, int component, Index x, Index y, Index z);

/// The difference operator p[i-1] - 2 p[i] + p[i+1], on n cells that wrap around, multiplies wave k by this.
double eigenvalue(Index k, Index n);

/// The diagonal of the pressure's equations along z, whose other coefficients are 1: plane `z` of `nz`, for waves whose
/// eigenvalues add up to `sum`. The pressure of wave 0 is known but for a constant, which is chosen here.
inline double diagonal(Index z, Index nz, double sum) {
  const double own = (z == 0 ? 0.0 : -1.0) + (z == nz - 1 ? 0.0 : -1.0) + sum;
  return z == 0 && sum == 0 ? own - 1 : own;
}

}  // namespace channel_flow
