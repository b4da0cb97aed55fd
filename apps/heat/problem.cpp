// SPDX-License-Identifier: Apache-2.0
#include "apps/heat/problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace heat {
namespace {

// Periods along x, y and z: not all the same, so that a test notices axes in the wrong order.
constexpr std::array<double, 3> kPeriods = {1, 2, 1};

double middle(Index cell, Index n) { return (static_cast<double>(cell) + 0.5) / static_cast<double>(n); }

// Wave numbers, per cell.
double wave(double periods, Index n) { return 2 * std::numbers::pi * periods / static_cast<double>(n); }

double sine(double periods, Index cell, Index n) { return std::sin(2 * std::numbers::pi * periods * middle(cell, n)); }

struct Ball {
  std::array<double, 3> centre;  // as fractions of the box
  double radius;                 // as a fraction of its first side
};
// About a quarter of z, the plane that pictures show.
constexpr std::array<Ball, 5> kBalls = {{{{0.25, 0.3, 0.25}, 0.12},
                                         {{0.7, 0.2, 0.2}, 0.07},
                                         {{0.6, 0.65, 0.3}, 0.16},
                                         {{0.05, 0.8, 0.25}, 0.1},
                                         {{0.35, 0.95, 0.15}, 0.08}}};

// The shorter distance, in cells, from a ball's centre to a cell in the periodic box.
double distance(double centre, Index cell, Index n) {
  const double parts = std::abs(middle(cell, n) - centre);
  return std::min(parts, 1 - parts) * static_cast<double>(n);
}

}  // namespace

double Problem::initial(Index x, Index y, Index z) const {
  if (start == Start::sine) return exact(x, y, z, 0);
  for (const auto& [centre, radius] : kBalls) {
    const double dx = distance(centre[0], x, nx);
    const double dy = distance(centre[1], y, ny);
    const double dz = has_planes() ? distance(centre[2], z, nz) : 0;
    if (std::hypot(dx, dy, dz) <= radius * static_cast<double>(nx)) return 1;
  }
  return 0;
}

double Problem::exact(Index x, Index y, Index z, Index steps) const {
  const auto [px, py, pz] = kPeriods;
  double shape = sine(px, x, nx) * sine(py, y, ny);
  double squares = wave(px, nx) * wave(px, nx) + wave(py, ny) * wave(py, ny);
  if (has_planes()) {
    shape *= sine(pz, z, nz);
    squares += wave(pz, nz) * wave(pz, nz);
  }
  return 1 + shape * std::exp(-squares * fourier * static_cast<double>(steps));
}

}  // namespace heat
