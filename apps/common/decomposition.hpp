// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace apps {

using Index = std::int64_t;

/// The cells of a problem, and in which directions it wraps around.
struct Mesh {
  Index nx = 0;
  Index ny = 0;
  bool periodic_x = false;
  bool periodic_y = false;
};

/// A rectangle of cells: [x, x + nx) by [y, y + ny).
struct Box {
  Index x = 0;
  Index y = 0;
  Index nx = 0;
  Index ny = 0;

  bool operator==(const Box&) const = default;
  Index cells() const { return nx * ny; }
};

/// A step to one of the eight cells around a cell; y grows to the south, as rows do.
struct Direction {
  int dx = 0;
  int dy = 0;
};

/// Faces first: a five-point stencil needs the first four only.
inline constexpr std::array<Direction, 8> kDirections = {
    {{-1, 0}, {1, 0}, {0, -1}, {0, 1}, {-1, -1}, {1, -1}, {-1, 1}, {1, 1}}};
inline constexpr int kFaces = 4;

inline constexpr int kNobody = -1;

/// How a mesh is cut into one block per rank: a grid of columns x rows, with sides that differ by at most one cell.
///
/// Of all grids of that many ranks it takes the one with the fewest cells along its cuts; of equals, the one that cuts
/// fewer rows of cells apart, because a row is contiguous in memory. Ranks count along x first.
class Decomposition {
 public:
  /// @throws UsageError if there are too few cells to give every rank one.
  Decomposition(const Mesh& mesh, int ranks);

  const Mesh& mesh() const { return mesh_; }
  int ranks() const { return columns_ * rows_; }
  int columns() const { return columns_; }
  int rows() const { return rows_; }

  /// The cells of a rank.
  Box box(int rank) const;

  /// Who owns the block in that direction: maybe the rank itself, or kNobody at an edge that does not wrap around.
  int neighbour(int rank, Direction direction) const;

 private:
  Mesh mesh_;
  int columns_ = 1;
  int rows_ = 1;
};

}  // namespace apps
