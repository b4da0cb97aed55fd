// SPDX-License-Identifier: Apache-2.0
#include "apps/jacobi/reference.hpp"

#include <algorithm>
#include <utility>

namespace jacobi {
namespace {

using apps::Index;

void wrap(const Problem& problem, std::vector<double>& field) {
  const Index nx = problem.nx;
  const Index ny = problem.ny;
  if (problem.periodic_y) {
    std::copy_n(&field[(ny - 2) * nx], nx, field.data());
    std::copy_n(&field[nx], nx, &field[(ny - 1) * nx]);
  }
  for (Index y = 0; y < ny && problem.periodic_x; ++y) {
    field[y * nx] = field[y * nx + nx - 2];
    field[y * nx + nx - 1] = field[y * nx + 1];
  }
}

void relax(const Problem& problem, const std::vector<double>& from, std::vector<double>& to) {
  const Index nx = problem.nx;
  for (Index y = 1; y < problem.ny - 1; ++y) {
    const double* const in = from.data() + y * nx;
    double* const out = to.data() + y * nx;
    for (Index x = 1; x < nx - 1; ++x) out[x] = 0.25 * (in[x + 1] + in[x - 1] + in[x + nx] + in[x - nx]);
  }
}

}  // namespace

std::vector<double> solve_serially(const Problem& problem, Index iterations) {
  std::vector<double> field(static_cast<std::size_t>(problem.nx * problem.ny));
  for (Index y = 0; y < problem.ny; ++y)
    for (Index x = 0; x < problem.nx; ++x) field[y * problem.nx + x] = problem.initial(x, y);
  std::vector<double> next = field;
  for (Index i = 0; i < iterations; ++i) {
    wrap(problem, field);
    relax(problem, field, next);
    std::swap(field, next);
  }
  std::vector<double> unknowns;
  unknowns.reserve(static_cast<std::size_t>(problem.mesh().nx * problem.mesh().ny));
  for (Index y = 1; y < problem.ny - 1; ++y)
    unknowns.insert(unknowns.end(), &field[y * problem.nx + 1], &field[y * problem.nx + problem.nx - 1]);
  return unknowns;
}

}  // namespace jacobi
