// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

#include <cstddef>

namespace faces {

using apps::Index;

/// Half of a node's new value is the mean of the copies that all blocks have of it: one inside a block, two on a face,
/// four on an edge, eight at a corner. The other half is the mean of its neighbours in its own block, so that copies
/// differ again. All blocks with a copy add the copies in one order.
struct Model {
  using Value = double;
  static constexpr std::size_t kDimensions = 3;
  static constexpr apps::Stencil kStencil = apps::Stencil::full;

  /// A ghost is the neighbouring block's copy of the node beside it.
  static constexpr double cell(const double* at, const apps::Strides& to, const apps::Place& place) {
    return 0.5 * copies(at, to, place) + 0.5 * neighbours(at, to, place);
  }

  /// Nodes inside the block, of which no other block has a copy.
  static constexpr void row(const double* __restrict in, const apps::Strides& to, double* __restrict out, Index n) {
    for (Index i = 0; i < n; ++i) out[i] = cell(in + i, to, {});
  }

 private:
  static constexpr double copies(const double* at, const apps::Strides& to, const apps::Place& place) {
    double sum = 0;
    int count = 0;
    for (int z = place.z < 0 ? -1 : 0; z <= (place.z > 0 ? 1 : 0); ++z)
      for (int y = place.y < 0 ? -1 : 0; y <= (place.y > 0 ? 1 : 0); ++y)
        for (int x = place.x < 0 ? -1 : 0; x <= (place.x > 0 ? 1 : 0); ++x, ++count) sum += at[to.offset(x, y, z)];
    return sum / count;
  }

  static constexpr double neighbours(const double* at, const apps::Strides& to, const apps::Place& place) {
    double sum = 0;
    int count = 0;
    const auto add = [&](int one, Index step) {
      if (one >= 0) sum += at[-step];
      if (one <= 0) sum += at[step];
      count += one == 0 ? 2 : 1;
    };
    add(place.x, 1);
    add(place.y, to.row);
    add(place.z, to.plane);
    return sum / count;
  }
};

}  // namespace faces
