// SPDX-License-Identifier: Apache-2.0
#include "apps/heat/reference.hpp"

#include <cstddef>
#include <utility>

namespace heat {
namespace {

// The positions before and after position i of n, with wrap-around.
Index before(Index i, Index n) { return i == 0 ? n - 1 : i - 1; }
Index after(Index i, Index n) { return i == n - 1 ? 0 : i + 1; }

}  // namespace

std::vector<double> solve_serially(const Problem& problem, Index steps) {
  const auto& [nx, ny, nz, fourier, start] = problem;
  const auto number = [nx = nx, ny = ny](Index x, Index y, Index z) {
    return static_cast<std::size_t>((z * ny + y) * nx + x);
  };
  std::vector<double> field;
  field.reserve(static_cast<std::size_t>(problem.mesh().cells()));
  for (Index z = 0; z < nz; ++z)
    for (Index y = 0; y < ny; ++y)
      for (Index x = 0; x < nx; ++x) field.push_back(problem.initial(x, y, z));
  std::vector<double> next(field.size());
  for (Index step = 0; step < steps; ++step) {
    for (Index z = 0; z < nz; ++z)
      for (Index y = 0; y < ny; ++y)
        for (Index x = 0; x < nx; ++x) {
          const double here = field[number(x, y, z)];
          double sum = field[number(after(x, nx), y, z)] + field[number(before(x, nx), y, z)] +
                       field[number(x, after(y, ny), z)] + field[number(x, before(y, ny), z)];
          if (problem.has_planes()) sum += field[number(x, y, after(z, nz))] + field[number(x, y, before(z, nz))];
          next[number(x, y, z)] = here + fourier * (sum - (problem.has_planes() ? 6 : 4) * here);
        }
    std::swap(field, next);
  }
  return field;
}

}  // namespace heat
