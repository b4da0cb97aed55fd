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

/// Hears of every norm that is computed, on every rank.
using NormSink = std::function<void(apps::Index iteration, double norm)>;

template <class Space>
using Simulation = apps::Simulation<Model, Space>;

/// The block with the ghosts around it, in both copies: those at the sides of a mesh that does not wrap stay as they
/// are.
template <class Space>
void set_initial(const Problem& problem, Simulation<Space>& simulation) {
  const apps::Box block = simulation.session().block();
  for (int copy = 0; copy < 2; ++copy)
    for (apps::Index y = -1; y <= block.ny; ++y)
      for (apps::Index x = -1; x <= block.nx; ++x)
        simulation.initial(copy)[y * simulation.pitch() + x] = problem.initial(block.x + x + 1, block.y + y + 1);
}

/// Returns how many iterations were made. The host waits only where a norm is due: never, if none is asked for.
template <class Space>
apps::Index iterate(const Options& options, Simulation<Space>& simulation, const NormSink& on_norm) {
  for (apps::Index done = 1; done <= options.iterations; ++done) {
    if (options.norm_every == 0 || done % options.norm_every != 0) {
      simulation.step();
      continue;
    }
    const double norm = std::sqrt(simulation.step_measured());
    on_norm(done, norm);
    if (norm <= options.tolerance) return done;
  }
  return options.iterations;
}

/// What Simulation needs to know.
inline apps::Setup setup(const Options& options) {
  return {options.problem().mesh(), apps::Stencil::five_point, options.iterations};
}

/// This rank's part of a run.
template <class Space>
Solution solve(Simulation<Space>& simulation, const Options& options, bool want_field, const NormSink& on_norm) {
  set_initial(options.problem(), simulation);
  simulation.start();
  const apps::Index steps = iterate(options, simulation, on_norm);
  Solution solution{simulation.stop("jacobi", steps), {}};
  solution.result.nx = options.nx;
  solution.result.ny = options.ny;
  if (want_field) solution.unknowns = simulation.gather();
  return solution;
}

}  // namespace jacobi
