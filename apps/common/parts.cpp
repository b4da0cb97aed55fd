// SPDX-License-Identifier: Apache-2.0
#include "apps/common/parts.hpp"

#include <array>
#include <cstddef>

namespace apps {
namespace {

// The axes in the order of Cartesian<3>.
constexpr std::array<Index Box::*, 3> kBegin = {&Box::z, &Box::y, &Box::x};
constexpr std::array<Index Box::*, 3> kLength = {&Box::nz, &Box::ny, &Box::nx};

// Moves one layer of cells at an end of an axis to the boundary, if any cells are left.
void cut_off(std::size_t axis, int end, Parts& parts) {
  Box& interior = parts.interior;
  if (interior.cells() == 0) return;
  Box layer = interior;
  layer.*kLength[axis] = 1;
  if (end > 0) {
    layer.*kBegin[axis] += interior.*kLength[axis] - 1;
  } else {
    ++(interior.*kBegin[axis]);
  }
  --(interior.*kLength[axis]);
  parts.boundary.push_back(layer);
}

}  // namespace

Parts divide(const Decomposition& decomposition, int rank) {
  const Box block = decomposition.box(rank);
  const auto grid = decomposition.grid<3>();
  Parts parts{{0, 0, 0, block.nx, block.ny, block.nz}, {}};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (const int end : {-1, 1}) {
      sluice::kokkos::Offset<3> offset{};
      offset[axis] = end;
      const auto peer = grid.neighbour(rank, offset);
      if (peer && *peer != rank) cut_off(axis, end, parts);
    }
  }
  return parts;
}

}  // namespace apps
