// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

#include <cstddef>

namespace cg {

using apps::Index;

/// The matrix, as the model of a Stepper: a step multiplies by it. D dimensions, 2 or 3.
template <std::size_t D>
struct Laplacian {
  using Value = double;
  static constexpr std::size_t kDimensions = D;
  static constexpr apps::Stencil kStencil = apps::Stencil::faces;

  static constexpr double cell(const double* at, const apps::Strides& to) {
    const double plane = (at[-1] + at[1]) + (at[-to.row] + at[to.row]);
    if constexpr (D == 2) return 4 * at[0] - plane;
    return 6 * at[0] - (plane + (at[-to.plane] + at[to.plane]));
  }
  static constexpr void row(const double* __restrict in, const apps::Strides& to, double* __restrict out, Index n) {
    for (Index x = 0; x < n; ++x) out[x] = cell(in + x, to);
  }
};

}  // namespace cg
