// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/channel_flow/problem.hpp"
#include "apps/common/pencils.hpp"

#include <array>
#include <vector>

namespace channel_flow {

using apps::Block;

/// A rank's cells of a field, with a layer of ghosts along y and z. Along x they wrap around by themselves.
class Field {
 public:
  explicit Field(const Block& block)
      : nx_(block[0].length), ny_(block[1].length), nz_(block[2].length),
        values_(static_cast<std::size_t>(nx_ * (ny_ + 2) * (nz_ + 2))) {}

  /// The first cell of a row, counted from this rank's first one; ghosts are at -1 and at the end.
  double* row(Index y, Index z) { return values_.data() + ((z + 1) * (ny_ + 2) + y + 1) * nx_; }
  const double* row(Index y, Index z) const { return const_cast<Field*>(this)->row(y, z); }
  Index nx() const { return nx_; }
  Index ny() const { return ny_; }
  Index nz() const { return nz_; }

 private:
  Index nx_;
  Index ny_;
  Index nz_;
  std::vector<double> values_;
};

using Velocity = std::array<Field, kComponents>;

/// The arithmetic of a step in this rank's cells. Ghosts are those of neighbours; those in walls are set here.
class Flow {
 public:
  Flow(const apps::Mesh& mesh, const Block& block);

  void set_initial(Velocity& velocity) const;
  /// One step of viscosity and force: `after` is `before` without pressure.
  void spread(Velocity& before, Velocity& after) const;
  /// The divergence of a cell's faces, in the order of memory of the cells.
  void divergence(Velocity& velocity, apps::Complex* cells) const;
  double largest_divergence(Velocity& velocity) const;
  /// Takes the pressure's gradient off the velocity.
  void project(const Field& pressure, Velocity& velocity) const;

 private:
  void set_walls(Velocity& velocity) const;
  double divergence_at(const Velocity& velocity, Index x, Index y, Index z) const;

  apps::Mesh mesh_;
  Block block_;
  bool lower_wall_;
  bool upper_wall_;
};

}  // namespace channel_flow
