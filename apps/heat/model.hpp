// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

#include <cstddef>

namespace heat {

/// An explicit step: a cell gains `fourier` times the difference to each neighbour. Neighbours are added in one order
/// everywhere, so that results are the same bits for any division of the mesh.
template <std::size_t D>
struct Model {
  using Value = double;
  static constexpr std::size_t kDimensions = D;
  static constexpr apps::Stencil kStencil = apps::Stencil::faces;

  double fourier = 0;

  constexpr double cell(const double* at, const apps::Strides& to) const {
    double sum = at[1] + at[-1] + at[to.row] + at[-to.row];
    if constexpr (D == 3) sum += at[to.plane] + at[-to.plane];
    return *at + fourier * (sum - 2 * D * *at);
  }

  constexpr void row(const double* __restrict in, const apps::Strides& to, double* __restrict out,
                     apps::Index n) const {
    for (apps::Index x = 0; x < n; ++x) out[x] = cell(in + x, to);
  }
};

}  // namespace heat
