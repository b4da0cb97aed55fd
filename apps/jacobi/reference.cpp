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

// The points of three planes in the column at `at`, the one in the middle last.
double column(const double* at, Index nx, Index plane) {
  double sum = 0;
  for (const Index y : {-nx, nx})
    for (const Index z : {-plane, Index{0}, plane}) sum += at[z + y];
  return sum + at[-plane] + at[plane];
}

void relax_planes(const Problem& problem, const std::vector<double>& from, std::vector<double>& to) {
  const Index nx = problem.nx;
  const Index plane = nx * problem.ny;
  for (Index z = 1; z < problem.nz - 1; ++z)
    for (Index y = 1; y < problem.ny - 1; ++y)
      for (Index x = 1; x < nx - 1; ++x) {
        const double* const at = from.data() + z * plane + y * nx + x;
        const double west = column(at - 1, nx, plane) + at[-1];
        const double east = column(at + 1, nx, plane) + at[1];
        to[z * plane + y * nx + x] = (west + east + column(at, nx, plane)) * (1.0 / 26);
      }
}

}  // namespace

std::vector<double> solve_serially(const Problem& problem, Index iterations) {
  std::vector<double> field;
  field.reserve(static_cast<std::size_t>(problem.nx * problem.ny * problem.nz));
  for (Index z = 0; z < problem.nz; ++z)
    for (Index y = 0; y < problem.ny; ++y)
      for (Index x = 0; x < problem.nx; ++x) field.push_back(problem.initial(x, y, z));
  std::vector<double> next = field;
  for (Index i = 0; i < iterations; ++i) {
    wrap(problem, field);
    (problem.has_planes() ? relax_planes : relax)(problem, field, next);
    std::swap(field, next);
  }
  std::vector<double> unknowns;
  unknowns.reserve(static_cast<std::size_t>(problem.mesh().cells()));
  const Index first = problem.has_planes() ? 1 : 0;
  for (Index z = first; z < problem.nz - first; ++z)
    for (Index y = 1; y < problem.ny - 1; ++y) {
      const double* const row = &field[(z * problem.ny + y) * problem.nx];
      unknowns.insert(unknowns.end(), row + 1, row + problem.nx - 1);
    }
  return unknowns;
}

}  // namespace jacobi
