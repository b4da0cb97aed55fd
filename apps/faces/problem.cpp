// SPDX-License-Identifier: Apache-2.0
#include "apps/faces/problem.hpp"

#include <cmath>
#include <tuple>

namespace faces {

double Problem::initial(Index x, Index y, Index z) const {
  return std::sin(static_cast<double>((z * mesh().ny + y) * mesh().nx + x));
}

Problem make_problem(int ranks, Index nodes) {
  // The smallest sum of the sides among all grids whose sides do not grow from z to x.
  std::tuple<int, std::array<int, 3>> best(2 * ranks + 2, {});
  for (int x = 1; x <= ranks; ++x)
    for (int y = x; ranks % x == 0 && y <= ranks / x; ++y) {
      const int z = ranks / x / y;
      if (x * y * z == ranks && z >= y && x + y + z < std::get<0>(best)) best = {x + y + z, {z, y, x}};
    }
  return {std::get<1>(best), nodes};
}

}  // namespace faces
