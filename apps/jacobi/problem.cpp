// SPDX-License-Identifier: Apache-2.0
#include "apps/jacobi/problem.hpp"

#include <cmath>
#include <numbers>

namespace jacobi {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// One period along n points.
double sine(apps::Index i, apps::Index n) {
  return std::sin(kTwoPi * static_cast<double>(i) / static_cast<double>(n - 1));
}

// Without mirror symmetry, so that a test notices a halo on the wrong side.
double waves(double u, double v) {
  return std::sin(kTwoPi * u) * std::cos(2 * kTwoPi * v) + 0.5 * std::sin(kTwoPi * (3 * u + v));
}

}  // namespace

double Problem::initial(apps::Index x, apps::Index y, apps::Index z) const {
  if (has_planes()) return x == 0 || x == nx - 1 ? sine(y, ny) * sine(z, nz) : 0;
  if (periodic_x && periodic_y)
    return waves(static_cast<double>(x) / static_cast<double>(nx - 2),
                 static_cast<double>(y) / static_cast<double>(ny - 2));
  if (!periodic_x && (x == 0 || x == nx - 1)) return sine(y, ny);
  if (periodic_x && (y == 0 || y == ny - 1)) return sine(x, nx);
  return 0;
}

}  // namespace jacobi
