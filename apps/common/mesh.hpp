// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace apps {

using Index = std::int64_t;

/// The cells of a problem, and the directions in which it is periodic. With nz = 1 it has two dimensions.
struct Mesh {
  Index nx = 0;
  Index ny = 0;
  Index nz = 1;
  bool periodic_x = false;
  bool periodic_y = false;
  bool periodic_z = false;

  Index cells() const { return nx * ny * nz; }
};

/// A cuboid of cells: [x, x + nx) by [y, y + ny) by [z, z + nz).
struct Box {
  Index x = 0;
  Index y = 0;
  Index z = 0;
  Index nx = 0;
  Index ny = 0;
  Index nz = 1;

  bool operator==(const Box&) const = default;
  Index cells() const { return nx * ny * nz; }
};

/// Which ghosts an update reads: those along the axes alone, or those of edges and corners too.
enum class Stencil { faces, full };

/// Position of a cell in its block, along each axis: -1 for the first cell, 1 for the last, else 0.
struct Place {
  int x = 0;
  int y = 0;
  int z = 0;
};

/// The distance in memory, in cells, to the next cell along y and along z.
struct Strides {
  Index row = 0;
  Index plane = 0;

  constexpr Index offset(Index x, Index y, Index z) const { return z * plane + y * row + x; }
};

}  // namespace apps
