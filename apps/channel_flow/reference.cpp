// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/reference.hpp"

#include <cmath>
#include <complex>
#include <cstddef>
#include <numbers>

namespace channel_flow {
namespace {

using Cells = std::vector<double>;
using Waves = std::vector<std::complex<double>>;

/// Whole fields of a box: periodic along x and y.
class Box {
 public:
  explicit Box(const apps::Mesh& mesh) : mesh_(mesh) {}

  std::size_t place(Index x, Index y, Index z) const {
    const Index inside_x = (x + mesh_.nx) % mesh_.nx;
    const Index inside_y = (y + mesh_.ny) % mesh_.ny;
    return static_cast<std::size_t>((z * mesh_.ny + inside_y) * mesh_.nx + inside_x);
  }
  void each(const auto& visit) const {
    for (Index z = 0; z < mesh_.nz; ++z)
      for (Index y = 0; y < mesh_.ny; ++y)
        for (Index x = 0; x < mesh_.nx; ++x) visit(x, y, z);
  }

  /// A component of the velocity; beyond a wall that which makes it zero on the wall.
  double at(const Cells& cells, int component, Index x, Index y, Index z) const {
    if (component == 2) return z == 0 || z == mesh_.nz ? 0 : cells[place(x, y, z)];
    if (z < 0) return -cells[place(x, y, 0)];
    if (z == mesh_.nz) return -cells[place(x, y, z - 1)];
    return cells[place(x, y, z)];
  }

  Cells spread(const Cells& cells, int component) const {
    Cells next(cells.size());
    each([&](Index x, Index y, Index z) {
      if (component == 2 && z == 0) return;
      const auto value = [&](Index i, Index j, Index k) { return at(cells, component, i, j, k); };
      const double beside = value(x - 1, y, z) + value(x + 1, y, z) + value(x, y - 1, z) + value(x, y + 1, z);
      const double own = value(x, y, z);
      const double change = beside + value(x, y, z - 1) + value(x, y, z + 1) - 6 * own;
      next[place(x, y, z)] = own + kViscosity * change + (component == 0 ? kForce : 0);
    });
    return next;
  }

  void transform(Waves& waves, bool along_x, int sign) const {
    const Index n = along_x ? mesh_.nx : mesh_.ny;
    Waves result(waves.size());
    each([&](Index x, Index y, Index z) {
      for (Index j = 0; j < n; ++j) {
        const Index turns = j * (along_x ? x : y) % n;
        const double angle = sign * 2 * std::numbers::pi * static_cast<double>(turns) / static_cast<double>(n);
        result[place(x, y, z)] += waves[along_x ? place(j, y, z) : place(x, j, z)] * std::polar(1.0, angle);
      }
    });
    waves = result;
  }

  /// Thomas' algorithm for the wave (x, y).
  void solve_along_z(Waves& waves, Index x, Index y) const {
    const double sum = eigenvalue(x, mesh_.nx) + eigenvalue(y, mesh_.ny);
    Cells factors;
    for (Index z = 0; z < mesh_.nz; ++z) {
      std::complex<double>& own = waves[place(x, y, z)];
      factors.push_back(1 / (diagonal(z, mesh_.nz, sum) - (z > 0 ? factors.back() : 0)));
      own = (own - (z > 0 ? waves[place(x, y, z - 1)] : 0)) * factors.back();
    }
    for (Index z = mesh_.nz - 2; z >= 0; --z)
      waves[place(x, y, z)] -= factors[static_cast<std::size_t>(z)] * waves[place(x, y, z + 1)];
  }

  Waves pressure(const std::array<Cells, kComponents>& velocity) const {
    const auto& [u, v, w] = velocity;
    Waves waves(u.size());
    each([&](Index x, Index y, Index z) {
      waves[place(x, y, z)] = at(u, 0, x + 1, y, z) - at(u, 0, x, y, z) + at(v, 1, x, y + 1, z) - at(v, 1, x, y, z) +
                              at(w, 2, x, y, z + 1) - at(w, 2, x, y, z);
    });
    transform(waves, true, -1);
    transform(waves, false, -1);
    for (Index y = 0; y < mesh_.ny; ++y)
      for (Index x = 0; x < mesh_.nx; ++x) solve_along_z(waves, x, y);
    transform(waves, true, 1);
    transform(waves, false, 1);
    for (auto& wave : waves) wave /= static_cast<double>(mesh_.nx * mesh_.ny);
    return waves;
  }

  void project(const Waves& pressure, std::array<Cells, kComponents>& velocity) const {
    each([&](Index x, Index y, Index z) {
      const double own = pressure[place(x, y, z)].real();
      velocity[0][place(x, y, z)] -= own - pressure[place(x - 1, y, z)].real();
      velocity[1][place(x, y, z)] -= own - pressure[place(x, y - 1, z)].real();
      if (z > 0) velocity[2][place(x, y, z)] -= own - pressure[place(x, y, z - 1)].real();
    });
  }

 private:
  apps::Mesh mesh_;
};

}  // namespace

std::array<std::vector<double>, kComponents> solve_serially(const apps::Mesh& mesh, Index steps) {
  const Box box(mesh);
  std::array<Cells, kComponents> velocity;
  for (int component = 0; component < kComponents; ++component)
    box.each([&](Index x, Index y, Index z) {
      velocity[static_cast<std::size_t>(component)].push_back(initial(mesh, component, x, y, z));
    });
  for (Index step = 0; step < steps; ++step) {
    for (int component = 0; component < kComponents; ++component) {
      Cells& cells = velocity[static_cast<std::size_t>(component)];
      cells = box.spread(cells, component);
    }
    box.project(box.pressure(velocity), velocity);
  }
  return velocity;
}

double products(const apps::Mesh& mesh, Index steps) {
  return 20 * static_cast<double>(mesh.cells()) * static_cast<double>(mesh.nx + mesh.ny) * static_cast<double>(steps);
}

}  // namespace channel_flow
