// SPDX-License-Identifier: Apache-2.0
#include "apps/common/decomposition.hpp"

#include "apps/common/usage_error.hpp"

#include <string>

namespace apps {
namespace {

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

// How often a side is cut when it is divided into `parts`: a wrap-around is a cut as well, unless nothing is cut.
Index cuts(int parts, bool periodic) { return parts == 1 ? 0 : parts - (periodic ? 0 : 1); }

Index halo_cells(const Mesh& mesh, int columns, int rows) {
  return cuts(columns, mesh.periodic_x) * mesh.ny + cuts(rows, mesh.periodic_y) * mesh.nx;
}

// The position after a step along one axis, or kNobody.
int step(int position, int by, int count, bool periodic) {
  const int next = position + by;
  if (next >= 0 && next < count) return next;
  return periodic ? (next + count) % count : kNobody;
}

}  // namespace

Decomposition::Decomposition(const Mesh& mesh, int ranks) : mesh_(mesh) {
  Index best = -1;
  for (int columns = 1; columns <= ranks; ++columns) {
    const int rows = ranks / columns;
    if (ranks % columns != 0 || columns > mesh.nx || rows > mesh.ny) continue;
    const Index halo = halo_cells(mesh, columns, rows);
    if (best >= 0 && halo >= best) continue;
    best = halo;
    columns_ = columns;
    rows_ = rows;
  }
  if (best < 0)
    throw UsageError("a mesh of " + std::to_string(mesh.nx) + " x " + std::to_string(mesh.ny) +
                     " cells cannot be divided among " + std::to_string(ranks) + " ranks");
}

Box Decomposition::box(int rank) const {
  const Share x = share(mesh_.nx, columns_, rank % columns_);
  const Share y = share(mesh_.ny, rows_, rank / columns_);
  return {x.begin, y.begin, x.length, y.length};
}

int Decomposition::neighbour(int rank, Direction direction) const {
  const int column = step(rank % columns_, direction.dx, columns_, mesh_.periodic_x);
  const int row = step(rank / columns_, direction.dy, rows_, mesh_.periodic_y);
  return column == kNobody || row == kNobody ? kNobody : row * columns_ + column;
}

}  // namespace apps
