// SPDX-License-Identifier: Apache-2.0
#include "apps/life/reference.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace life {
namespace {

// The field with a border of one cell, which wrap() fills, so that the loop over it has no special cases.
struct Bordered {
  Index pitch;
  std::vector<Cell> cells;

  Bordered(Index nx, Index ny) : pitch(nx + 2), cells(static_cast<std::size_t>((nx + 2) * (ny + 2))) {}
  Cell* row(Index y) { return &cells[(y + 1) * pitch + 1]; }
};

void wrap(const World& world, Bordered& field) {
  for (Index y = 0; y < world.ny; ++y) {
    field.row(y)[-1] = field.row(y)[world.nx - 1];
    field.row(y)[world.nx] = field.row(y)[0];
  }
  std::copy_n(field.row(world.ny - 1) - 1, field.pitch, field.row(-1) - 1);
  std::copy_n(field.row(0) - 1, field.pitch, field.row(world.ny) - 1);
}

void generation(const World& world, Bordered& from, Bordered& to) {
  std::array<std::array<Cell, 9>, 2> next{};
  for (unsigned alive = 0; alive < 2; ++alive)
    for (unsigned neighbours = 0; neighbours <= 8; ++neighbours)
      next[alive][neighbours] = world.rule.next(alive != 0, neighbours) ? 1 : 0;
  for (Index y = 0; y < world.ny; ++y) {
    const Cell* const above = from.row(y - 1);
    const Cell* const row = from.row(y);
    const Cell* const below = from.row(y + 1);
    Cell* const out = to.row(y);
    for (Index x = 0; x < world.nx; ++x) {
      const int neighbours =
          above[x - 1] + above[x] + above[x + 1] + row[x - 1] + row[x + 1] + below[x - 1] + below[x] + below[x + 1];
      out[x] = next[row[x]][neighbours];
    }
  }
}

}  // namespace

std::vector<Cell> live_serially(const World& world, Index generations) {
  Bordered field(world.nx, world.ny);
  Bordered next(world.nx, world.ny);
  populate(world, {.nx = world.nx, .ny = world.ny}, field.row(0), field.pitch);
  for (Index i = 0; i < generations; ++i) {
    wrap(world, field);
    generation(world, field, next);
    std::swap(field, next);
  }
  std::vector<Cell> cells;
  cells.reserve(static_cast<std::size_t>(world.nx * world.ny));
  for (Index y = 0; y < world.ny; ++y) cells.insert(cells.end(), field.row(y), field.row(y) + world.nx);
  return cells;
}

}  // namespace life
