// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/simulation.hpp"
#include "apps/life/model.hpp"
#include "apps/life/options.hpp"
#include "apps/life/solution.hpp"
#include "apps/life/world.hpp"

#include <cstdint>
#include <functional>
#include <span>

namespace life {

/// Receives, at rank 0, the fields that a run writes or shows before its end.
using FieldSink = std::function<void(Index generation, std::span<const Cell> cells)>;

/// The number of live cells of a block.
inline std::uint64_t count_alive(const Cell* cells, const apps::Box& block, Index pitch) {
  std::uint64_t alive = 0;
  for (Index y = 0; y < block.ny; ++y)
    for (Index x = 0; x < block.nx; ++x) alive += cells[y * pitch + x];
  return alive;
}

template <class Space>
using Simulation = apps::Simulation<Model, Space>;

/// The parameters of Simulation.
inline apps::Setup setup(const Options& options, const World& world) { return {world.mesh(), {}, options.generations}; }

/// This rank's part of a run.
template <class Space>
Solution solve(Simulation<Space>& simulation, const Options& options, const World& world, bool want_field,
               const FieldSink& on_write = {}) {
  const apps::Box block = simulation.session().block();
  const Index pitch = simulation.strides().row;
  populate(world, block, simulation.initial(0), pitch);
  simulation.start();
  apps::advance(simulation, options.frames, options.generations, on_write);
  Solution solution{simulation.stop("life", options.generations), 0, {}};
  const double mine = static_cast<double>(count_alive(simulation.cells(), block, pitch));
  solution.population = static_cast<std::uint64_t>(simulation.session().collectives->sum(mine));
  if (want_field) solution.cells = simulation.gather();
  return solution;
}

}  // namespace life
