// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/simulation.hpp"
#include "apps/heat/model.hpp"
#include "apps/heat/options.hpp"
#include "apps/heat/report.hpp"
#include "apps/heat/solution.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

namespace heat {

/// Receives, at rank 0, the fields that a run writes or shows before its end.
using FieldSink = std::function<void(Index step, std::span<const double> cells)>;

template <std::size_t D, class Space>
using Simulation = apps::Simulation<Model<D>, Space>;

/// Calls `visit(place, x, y, z)` for each cell of a block: its place in memory, counted from the first cell, and its
/// place in the box.
template <class Visit>
void each_cell(const apps::Box& block, const apps::Strides& strides, Visit visit) {
  for (Index z = 0; z < block.nz; ++z)
    for (Index y = 0; y < block.ny; ++y)
      for (Index x = 0; x < block.nx; ++x) visit(strides.offset(x, y, z), block.x + x, block.y + y, block.z + z);
}

/// All the heat in the box, the same on all ranks. The rounding error of each addition is added at the end (Neumaier:
/// Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen, 1974), because the sum itself must not lose
/// heat.
template <std::size_t D, class Space>
double heat_in(Simulation<D, Space>& simulation, const double* cells) {
  double sum = 0;
  double lost = 0;
  each_cell(simulation.session().block(), simulation.strides(), [&](Index place, Index, Index, Index) {
    const double value = cells[place];
    const double next = sum + value;
    lost += std::abs(sum) >= std::abs(value) ? (sum - next) + value : (value - next) + sum;
    sum = next;
  });
  return simulation.session().collectives->sum(sum + lost);
}

/// The largest difference of a cell from the exact solution, the same on all ranks; infinite if one is NaN.
template <std::size_t D, class Space>
double error_of(const Problem& problem, Index steps, Simulation<D, Space>& simulation) {
  double worst = 0;
  const double* const cells = simulation.cells();
  each_cell(simulation.session().block(), simulation.strides(), [&](Index place, Index x, Index y, Index z) {
    const double error = std::abs(cells[place] - problem.exact(x, y, z, steps));
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  });
  return simulation.session().collectives->max(worst);
}

template <std::size_t D, class Space>
void set_initial(const Problem& problem, Simulation<D, Space>& simulation) {
  double* const cells = simulation.initial(0);
  each_cell(simulation.session().block(), simulation.strides(),
            [&](Index place, Index x, Index y, Index z) { cells[place] = problem.initial(x, y, z); });
}

/// The parameters of Simulation.
inline apps::Setup setup(const Problem& problem, Index steps) { return {problem.mesh(), {}, steps}; }

/// This rank's part of a run.
template <std::size_t D, class Space>
Solution solve(Simulation<D, Space>& simulation, const Options& options, bool want_field,
               const FieldSink& on_write = {}) {
  const bool communicates = options.common.comm != apps::Comm::none;
  set_initial<D>(options.problem(), simulation);
  Balance balance;
  if (communicates) balance.before = heat_in<D>(simulation, simulation.initial(0));
  simulation.start();
  apps::advance(simulation, options.frames, options.steps, on_write);
  Solution solution{simulation.stop("heat", options.steps), {}, {}, {}};
  if (communicates) {
    balance.after = heat_in<D>(simulation, simulation.cells());
    solution.balance = balance;
  }
  if (reports_error(options)) solution.accuracy = {error_of<D>(options.problem(), options.steps, simulation), {}};
  if (want_field) solution.cells = simulation.gather();
  return solution;
}

/// The error of the run in cells twice as wide, with no frames.
template <std::size_t D, class Space>
double coarse_error(sluice::Context& context, const Options& options, const Space& space) {
  const Problem problem = options.problem().coarser();
  const Index steps = options.steps / 4;
  Simulation<D, Space> simulation(context, options.common, setup(problem, steps), Model<D>{problem.fourier}, space);
  set_initial<D>(problem, simulation);
  simulation.start();
  apps::advance(simulation, {}, steps, FieldSink());
  simulation.stop("heat", steps);
  return error_of<D>(problem, steps, simulation);
}

}  // namespace heat
