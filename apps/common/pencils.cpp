// SPDX-License-Identifier: Apache-2.0
#include "apps/common/pencils.hpp"

#include "apps/common/usage_error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace apps {

Block common_part(const Block& a, const Block& b) {
  Block part;
  for (std::size_t axis = 0; axis < part.size(); ++axis) {
    const Index begin = std::max(a[axis].begin, b[axis].begin);
    const Index end = std::min(a[axis].begin + a[axis].length, b[axis].begin + b[axis].length);
    part[axis] = {begin, std::max<Index>(end - begin, 0)};
  }
  return part;
}

Block slab(const Block& block, int axis, int parts, int number) {
  Block part = block;
  Range& range = part[static_cast<std::size_t>(axis)];
  const Index begin = range.length * number / parts;
  const Index end = range.length * (number + 1) / parts;
  range = {range.begin + begin, end - begin};
  return part;
}

Index Pencil::stride(int axis) const {
  Index cells = 1;
  for (const int before : order) {
    if (before == axis) break;
    cells *= block[static_cast<std::size_t>(before)].length;
  }
  return cells;
}

Index Pencil::offset(const std::array<Index, 3>& cell) const {
  Index offset = 0;
  for (int axis = 0; axis < 3; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    offset += (cell[i] - block[i].begin) * stride(axis);
  }
  return offset;
}

Pencils::Pencils(const Mesh& mesh, int ranks) : mesh_(mesh) {
  for (int rows = 1; rows * rows <= ranks; ++rows) {
    const int columns = ranks / rows;
    const bool fits = columns <= std::min(mesh.nx, mesh.ny) && rows <= std::min(mesh.ny, mesh.nz);
    if (rows * columns != ranks || !fits) continue;
    rows_ = rows;
    columns_ = columns;
  }
  if (rows_ == 0)
    throw UsageError(fmt::format("a box of {} x {} x {} cells cannot be divided into pencils for {} ranks", mesh.nx,
                                 mesh.ny, mesh.nz, ranks));
}

Decomposition Pencils::along(int axis) const {
  if (axis == 0) return {mesh_, {rows_, columns_, 1}};
  if (axis == 1) return {mesh_, {rows_, 1, columns_}};
  return {mesh_, {1, rows_, columns_}};
}

Pencil Pencils::pencil(int axis, int rank) const {
  static constexpr std::array<std::array<int, 3>, 3> kOrders = {{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}}};
  const Box box = along(axis).box(rank);
  return {{{{box.x, box.nx}, {box.y, box.ny}, {box.z, box.nz}}}, kOrders[static_cast<std::size_t>(axis)]};
}

}  // namespace apps
