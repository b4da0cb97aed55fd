// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/simulation.hpp"
#include "apps/faces/model.hpp"
#include "apps/faces/options.hpp"
#include "apps/faces/problem.hpp"
#include "apps/faces/solution.hpp"

namespace faces {

template <class Space>
using Simulation = apps::Simulation<Model, Space>;

/// The parameters of Simulation.
inline apps::Setup setup(const Problem& problem, Index steps) { return {problem.mesh(), problem.grid, steps}; }

/// This rank's part of a run.
template <class Space>
Solution solve(Simulation<Space>& simulation, const Problem& problem, Index steps, bool want_field) {
  const apps::Box block = simulation.session().block();
  const apps::Strides strides = simulation.strides();
  for (Index z = 0; z < block.nz; ++z)
    for (Index y = 0; y < block.ny; ++y)
      for (Index x = 0; x < block.nx; ++x)
        simulation.initial(0)[strides.offset(x, y, z)] = problem.initial(block.x + x, block.y + y, block.z + z);
  simulation.start();
  for (Index i = 0; i < steps; ++i) simulation.step();
  Solution solution{simulation.stop("faces", steps), {}};
  if (want_field) solution.copies = simulation.gather();
  return solution;
}

}  // namespace faces
