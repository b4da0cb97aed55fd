// SPDX-License-Identifier: Apache-2.0
#include "apps/cg/problem.hpp"

namespace cg {

double Problem::charge(Index x, Index y, Index z) const {
  if (x == nx / 4 && y == ny / 3 && z == nz / 3) return 1;
  if (x == 2 * nx / 3 && y == 3 * ny / 4 && z == nz / 2) return -1;
  return 0;
}

}  // namespace cg
