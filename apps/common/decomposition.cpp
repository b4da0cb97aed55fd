// SPDX-License-Identifier: Apache-2.0
#include "apps/common/decomposition.hpp"

#include "apps/common/usage_error.hpp"

#include <array>
#include <string>

namespace apps {
namespace {

constexpr double kMostCells = 0x1p43;  // of a rank: two copies of so many cells of eight bytes fill 47 bits

struct Share {
  Index begin;
  Index length;
};

// The first `cells % parts` parts have one cell more.
Share share(Index cells, int parts, int part) {
  const Index least = cells / parts;
  const Index more = cells % parts;
  return {part * least + (part < more ? part : more), least + (part < more ? 1 : 0)};
}

// How often a side is cut when it is divided into `parts`: a periodic boundary is a cut as well, unless nothing is cut.
Index cuts(int parts, bool periodic) { return parts == 1 ? 0 : parts - (periodic ? 0 : 1); }

Index halo_cells(const Mesh& mesh, int columns, int rows, int layers) {
  return cuts(columns, mesh.periodic_x) * mesh.ny * mesh.nz + cuts(rows, mesh.periodic_y) * mesh.nx * mesh.nz +
         cuts(layers, mesh.periodic_z) * mesh.nx * mesh.ny;
}

std::string size_of(const Mesh& mesh) {
  const std::string plane = std::to_string(mesh.nx) + " x " + std::to_string(mesh.ny);
  return mesh.nz == 1 ? plane : plane + " x " + std::to_string(mesh.nz);
}

}  // namespace

Decomposition::Decomposition(const Mesh& mesh, int ranks)
    : mesh_(mesh), grid_{{1, 1, 1}, {mesh.periodic_z, mesh.periodic_y, mesh.periodic_x}} {
  if (static_cast<double>(mesh.nx) * static_cast<double>(mesh.ny) * static_cast<double>(mesh.nz) > kMostCells * ranks)
    throw UsageError("a mesh of " + size_of(mesh) +
                     " cells is more than memory has addresses for (ranks: " + std::to_string(ranks) + ")");
  Index best = -1;
  for (int columns = 1; columns <= ranks; ++columns) {
    for (int rows = 1; ranks % columns == 0 && rows <= ranks / columns; ++rows) {
      const int layers = ranks / columns / rows;
      if (columns * rows * layers != ranks || columns > mesh.nx || rows > mesh.ny || layers > mesh.nz) continue;
      const Index halo = halo_cells(mesh, columns, rows, layers);
      if (best >= 0 && halo >= best) continue;
      best = halo;
      grid_.ranks = {layers, rows, columns};
    }
  }
  if (best < 0)
    throw UsageError("a mesh of " + size_of(mesh) + " cells cannot be divided among " + std::to_string(ranks) +
                     " ranks");
}

Decomposition::Decomposition(const Mesh& mesh, const std::array<int, 3>& grid)
    : mesh_(mesh), grid_{grid, {mesh.periodic_z, mesh.periodic_y, mesh.periodic_x}} {}

Box Decomposition::box(int rank) const {
  const std::array<int, 3> at = grid_.coordinates_of(rank);
  const Share x = share(mesh_.nx, columns(), at[2]);
  const Share y = share(mesh_.ny, rows(), at[1]);
  const Share z = share(mesh_.nz, layers(), at[0]);
  return {x.begin, y.begin, z.begin, x.length, y.length, z.length};
}

}  // namespace apps
