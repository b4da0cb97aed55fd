// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/problem.hpp"

#include <cmath>
#include <numbers>

namespace channel_flow {

double initial(const apps::Mesh& mesh, int component, Index x, Index y, Index z) {
  if (component == 2 && z == 0) return 0;
  const auto cell = static_cast<double>((z * mesh.ny + y) * mesh.nx + x);
  return std::sin(cell + 2 * component);
}

double eigenvalue(Index k, Index n) {
  return k == 0 ? 0 : 2 * std::cos(2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n)) - 2;
}

}  // namespace channel_flow
