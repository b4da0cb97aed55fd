// SPDX-License-Identifier: Apache-2.0
#include "apps/fft/reference.hpp"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace fft {
namespace {

void transform_axis(std::vector<Complex>& all, Index n, Index stride) {
  std::vector<Complex> roots;
  for (Index i = 0; i < n; ++i)
    roots.push_back(std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(n)));
  std::vector<Complex> line(static_cast<std::size_t>(n));
  for (Index i = 0; i < static_cast<Index>(all.size()); ++i) {
    if (i / stride % n != 0) continue;  // no line begins here
    Complex* const first = &all[static_cast<std::size_t>(i)];
    for (Index k = 0; k < n; ++k) {
      Complex sum = 0;
      for (Index j = 0; j < n; ++j) sum += first[j * stride] * roots[static_cast<std::size_t>(j * k % n)];
      line[static_cast<std::size_t>(k)] = sum;
    }
    for (Index k = 0; k < n; ++k) first[k * stride] = line[static_cast<std::size_t>(k)];
  }
}

}  // namespace

Complex initial(const apps::Mesh& mesh, Index x, Index y, Index z) {
  const auto i = static_cast<double>((z * mesh.ny + y) * mesh.nx + x);
  return {std::sin(i), std::cos(3 * i)};
}

std::vector<Complex> transform_serially(const apps::Mesh& mesh) {
  std::vector<Complex> all;
  for (Index z = 0; z < mesh.nz; ++z)
    for (Index y = 0; y < mesh.ny; ++y)
      for (Index x = 0; x < mesh.nx; ++x) all.push_back(initial(mesh, x, y, z));
  transform_axis(all, mesh.nx, 1);
  transform_axis(all, mesh.ny, mesh.nx);
  transform_axis(all, mesh.nz, mesh.nx * mesh.ny);
  return all;
}

double products(const apps::Mesh& mesh) {
  return static_cast<double>(mesh.cells()) * static_cast<double>(mesh.nx + mesh.ny + mesh.nz);
}

}  // namespace fft
