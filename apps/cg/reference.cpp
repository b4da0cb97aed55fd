// SPDX-License-Identifier: Apache-2.0
#include "apps/cg/reference.hpp"

#include <cstddef>
#include <numeric>

namespace cg {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Vector multiplied(const Problem& problem, const Vector& u) {
  const Index nx = problem.nx;
  const Index ny = problem.ny;
  const Index nz = problem.nz;
  const auto at = [&](Index x, Index y, Index z) {
    const bool inside = x >= 0 && x < nx && y >= 0 && y < ny && z >= 0 && z < nz;
    return inside ? u[static_cast<std::size_t>((z * ny + y) * nx + x)] : 0;
  };
  const double diagonal = problem.has_planes() ? 6 : 4;
  Vector product;
  product.reserve(u.size());
  for (Index z = 0; z < nz; ++z)
    for (Index y = 0; y < ny; ++y)
      for (Index x = 0; x < nx; ++x) {
        const double beside = at(x - 1, y, z) + at(x + 1, y, z) + at(x, y - 1, z) + at(x, y + 1, z);
        product.push_back(diagonal * at(x, y, z) - beside - at(x, y, z - 1) - at(x, y, z + 1));
      }
  return product;
}

}  // namespace

std::vector<double> solve_serially(const Problem& problem, Index iterations) {
  Vector r;
  for (Index z = 0; z < problem.nz; ++z)
    for (Index y = 0; y < problem.ny; ++y)
      for (Index x = 0; x < problem.nx; ++x) r.push_back(problem.charge(x, y, z));
  Vector p = r;
  Vector solution(r.size());
  double gamma = dot(r, r);
  const double exact = 1e-30 * gamma;
  for (Index i = 0; i < iterations && gamma > exact; ++i) {
    const Vector q = multiplied(problem, p);
    const double alpha = gamma / dot(p, q);
    for (std::size_t j = 0; j < p.size(); ++j) {
      solution[j] += alpha * p[j];
      r[j] -= alpha * q[j];
    }
    const double next = dot(r, r);
    for (std::size_t j = 0; j < p.size(); ++j) p[j] = r[j] + next / gamma * p[j];
    gamma = next;
  }
  return solution;
}

}  // namespace cg
