// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"

#include <array>
#include <complex>
#include <vector>

namespace apps {

using Complex = std::complex<double>;

/// A cuboid of cells: a range of each axis.
struct Range {
  Index begin = 0;
  Index length = 0;
};
using Block = std::array<Range, 3>;  ///< of x, y and z

inline Index cells(const Block& block) { return block[0].length * block[1].length * block[2].length; }
Block common_part(const Block& a, const Block& b);
/// Part `number` of `parts` of a block, cut along an axis. A part may be empty.
Block slab(const Block& block, int axis, int parts, int number);

/// A rank's cells, whole along one axis, in memory line by line along that axis.
struct Pencil {
  Block block;
  std::array<int, 3> order;  ///< the axes; the first is contiguous, and whole

  Index stride(int axis) const;
  /// The place in memory of a cell of the box.
  Index offset(const std::array<Index, 3>& cell) const;
};

/// How a box is cut into pencils along x, y and z: columns x rows of them, one for each rank. In pencils along x, y is
/// cut by columns and z by rows; along y, x by columns and z by rows; along z, x by columns and y by rows. So the ranks
/// of a row exchange cells between x and y, and those of a column between y and z.
class Pencils {
 public:
  /// The grid that is closest to a square.
  /// @throws UsageError if no grid gives every rank a pencil along each axis
  Pencils(const Mesh& mesh, int ranks);

  int columns() const { return columns_; }
  int rows() const { return rows_; }
  Pencil pencil(int axis, int rank) const;
  /// The pencils along x as Sluice's applications know blocks; or those along z.
  Decomposition along(int axis) const;

 private:
  Mesh mesh_;
  int columns_ = 0;
  int rows_ = 0;
};

}  // namespace apps
