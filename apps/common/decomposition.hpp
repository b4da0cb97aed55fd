// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

#include <sluice/kokkos/cartesian.hpp>

#include <array>
#include <cstddef>

namespace apps {

/// How a mesh is cut into one block per rank: a grid of layers x rows x columns, with sides that differ by at most one
/// cell.
///
/// Chooses the grid with the fewest cells along its cuts; among equals, the one that cuts fewer rows of cells, because
/// a row is contiguous in memory. Ranks count along x first.
class Decomposition {
 public:
  /// @throws UsageError if there are too few cells to give every rank one, or more than a rank can address.
  Decomposition(const Mesh& mesh, int ranks);
  /// A given grid: layers, rows, columns.
  Decomposition(const Mesh& mesh, const std::array<int, 3>& grid);

  const Mesh& mesh() const { return mesh_; }
  int ranks() const { return grid_.size(); }
  int columns() const { return grid_.ranks[2]; }
  int rows() const { return grid_.ranks[1]; }
  int layers() const { return grid_.ranks[0]; }

  /// The cells of a rank.
  Box box(int rank) const;

  /// The neighbours of each rank, along z, y and x; in two dimensions along y and x.
  template <std::size_t D>
  sluice::kokkos::Cartesian<D> grid() const {
    sluice::kokkos::Cartesian<D> last;
    for (std::size_t k = 0; k < D; ++k) {
      last.ranks[k] = grid_.ranks[3 - D + k];
      last.periodic[k] = grid_.periodic[3 - D + k];
    }
    return last;
  }

 private:
  Mesh mesh_;
  sluice::kokkos::Cartesian<3> grid_;
};

}  // namespace apps
