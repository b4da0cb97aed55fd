// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/flow.hpp"

#include <algorithm>
#include <cmath>

namespace channel_flow {
namespace {

template <class Visit>
void each_row(const Field& field, const Visit& visit) {
  for (Index z = 0; z < field.nz(); ++z)
    for (Index y = 0; y < field.ny(); ++y) visit(y, z);
}

}  // namespace

Flow::Flow(const apps::Mesh& mesh, const Block& block)
    : mesh_(mesh), block_(block), lower_wall_(block[2].begin == 0),
      upper_wall_(block[2].begin + block[2].length == mesh.nz) {}

void Flow::set_initial(Velocity& velocity) const {
  for (int component = 0; component < kComponents; ++component) {
    Field& field = velocity[static_cast<std::size_t>(component)];
    each_row(field, [&](Index y, Index z) {
      for (Index x = 0; x < field.nx(); ++x)
        field.row(y, z)[x] = initial(mesh_, component, x, block_[1].begin + y, block_[2].begin + z);
    });
  }
}

/// Along a wall the velocity is zero: midway between a cell and its ghost, or, across the wall, on the face itself.
void Flow::set_walls(Velocity& velocity) const {
  const auto mirror = [](Field& field, Index from, Index to, double factor) {
    for (Index y = 0; y < field.ny(); ++y)
      for (Index x = 0; x < field.nx(); ++x) field.row(y, to)[x] = factor * field.row(y, from)[x];
  };
  const Index top = velocity[0].nz();
  for (const std::size_t component : {0, 1}) {
    if (lower_wall_) mirror(velocity[component], 0, -1, -1);
    if (upper_wall_) mirror(velocity[component], top - 1, top, -1);
  }
  if (upper_wall_) mirror(velocity[2], top - 1, top, 0);
}

void Flow::spread(Velocity& before, Velocity& after) const {
  set_walls(before);
  const Index nx = before[0].nx();
  for (std::size_t component = 0; component < before.size(); ++component) {
    const Field& in = before[component];
    each_row(in, [&](Index y, Index z) {
      const double* const own = in.row(y, z);
      double* const out = after[component].row(y, z);
      const bool on_wall = component == 2 && lower_wall_ && z == 0;
      for (Index x = 0; x < nx; ++x) {
        const double beside = own[x == 0 ? nx - 1 : x - 1] + own[x == nx - 1 ? 0 : x + 1];
        const double around = beside + in.row(y - 1, z)[x] + in.row(y + 1, z)[x];
        const double all = around + in.row(y, z - 1)[x] + in.row(y, z + 1)[x];
        out[x] = on_wall ? 0 : own[x] + kViscosity * (all - 6 * own[x]) + (component == 0 ? kForce : 0);
      }
    });
  }
}

double Flow::divergence_at(const Velocity& velocity, Index x, Index y, Index z) const {
  const auto& [u, v, w] = velocity;
  const double* const along = u.row(y, z);
  const double across = v.row(y + 1, z)[x] - v.row(y, z)[x];
  return along[x == u.nx() - 1 ? 0 : x + 1] - along[x] + across + (w.row(y, z + 1)[x] - w.row(y, z)[x]);
}

void Flow::divergence(Velocity& velocity, apps::Complex* cells) const {
  set_walls(velocity);
  each_row(velocity[0], [&](Index y, Index z) {
    for (Index x = 0; x < velocity[0].nx(); ++x) *cells++ = divergence_at(velocity, x, y, z);
  });
}

double Flow::largest_divergence(Velocity& velocity) const {
  set_walls(velocity);
  double most = 0;
  each_row(velocity[0], [&](Index y, Index z) {
    for (Index x = 0; x < velocity[0].nx(); ++x) {
      const double here = std::abs(divergence_at(velocity, x, y, z));
      most = std::isnan(here) ? INFINITY : std::max(most, here);
    }
  });
  return most;
}

void Flow::project(const Field& pressure, Velocity& velocity) const {
  auto& [u, v, w] = velocity;
  const Index nx = pressure.nx();
  each_row(pressure, [&](Index y, Index z) {
    const double* const own = pressure.row(y, z);
    for (Index x = 0; x < nx; ++x) {
      u.row(y, z)[x] -= own[x] - own[x == 0 ? nx - 1 : x - 1];
      v.row(y, z)[x] -= own[x] - pressure.row(y - 1, z)[x];
      if (!lower_wall_ || z > 0) w.row(y, z)[x] -= own[x] - pressure.row(y, z - 1)[x];
    }
  });
}

}  // namespace channel_flow
