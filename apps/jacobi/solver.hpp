// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/simulation.hpp"
#include "apps/jacobi/model.hpp"
#include "apps/jacobi/options.hpp"
#include "apps/jacobi/problem.hpp"
#include "apps/jacobi/solution.hpp"

#include <cmath>
#include <functional>

namespace jacobi {

/// Receives every norm that is computed, on every rank.
using NormSink = std::function<void(apps::Index iteration, double norm)>;

/// Simulation in a plane or a volume.
template <class Model, class Space>
using Simulation = apps::Simulation<Model, Space>;

/// Sets the block with the ghosts around it, in both copies. Ghosts at the sides of a mesh that is not periodic keep
/// their values.
template <class Model, class Space>
void set_initial(const Problem& problem, Simulation<Model, Space>& simulation) {
  const apps::Box block = simulation.session().block();
  const apps::Strides strides = simulation.strides();
  const Index ghosts = problem.has_planes() ? 1 : 0;  // along z
  for (int copy = 0; copy < 2; ++copy)
    for (Index z = -ghosts; z < block.nz + ghosts; ++z)
      for (Index y = -1; y <= block.ny; ++y)
        for (Index x = -1; x <= block.nx; ++x)
          simulation.initial(copy)[strides.offset(x, y, z)] =
              problem.initial(block.x + x + 1, block.y + y + 1, block.z + z + ghosts);
}

/// Returns the number of iterations made: all, if nothing is communicated, because each rank's norm is then its own.
/// The host waits only when a norm is due; without norms it never waits.
template <class Model, class Space>
apps::Index iterate(const Options& options, Simulation<Model, Space>& simulation, const NormSink& on_norm) {
  const bool may_stop = options.common.comm != apps::Comm::none;
  for (apps::Index done = 1; done <= options.iterations; ++done) {
    if (options.norm_every == 0 || done % options.norm_every != 0) {
      simulation.step();
      continue;
    }
    const double norm = std::sqrt(simulation.step_measured());
    on_norm(done, norm);
    if (may_stop && norm <= options.tolerance) return done;
  }
  return options.iterations;
}

/// The parameters of Simulation.
inline apps::Setup setup(const Options& options) { return {options.problem().mesh(), {}, options.iterations}; }

/// This rank's part of a run.
template <class Model, class Space>
Solution solve(Simulation<Model, Space>& simulation, const Options& options, bool want_field, const NormSink& on_norm) {
  set_initial(options.problem(), simulation);
  simulation.start();
  const apps::Index steps = iterate(options, simulation, on_norm);
  Solution solution{simulation.stop("jacobi", steps), {}};
  solution.result.nx = options.nx;
  solution.result.ny = options.ny;
  solution.result.nz = options.nz;
  if (want_field) solution.unknowns = simulation.gather();
  return solution;
}

}  // namespace jacobi
