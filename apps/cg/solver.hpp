// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/cg/method.hpp"
#include "apps/cg/options.hpp"
#include "apps/cg/solution.hpp"

#include <functional>

namespace cg {

/// Receives every residual that is looked at, on every rank, as a part of the first one.
using ResidualSink = std::function<void(Index iteration, double residual)>;

/// The parameters of Simulation.
inline apps::Setup setup(const Options& options) { return {options.problem().mesh(), {}, options.iterations}; }

/// Returns the number of iterations made: all, if nothing is communicated. The host waits only to look at a residual.
template <std::size_t D, class Space>
Index iterate(const Options& options, Simulation<D, Space>& simulation, Method<D, Space>& method,
              const ResidualSink& on_residual) {
  const bool may_stop = options.common.comm != apps::Comm::none;
  for (Index done = 1; done <= options.iterations; ++done) {
    method.iterate();
    if (options.check_every == 0 || done % options.check_every != 0) continue;
    simulation.synchronize();
    on_residual(done, method.residual());
    if (may_stop && method.residual() <= options.tolerance) return done;
  }
  return options.iterations;
}

/// This rank's part of a run.
template <std::size_t D, class Space>
Solution solve(Simulation<D, Space>& simulation, const Options& options, bool want_field,
               const ResidualSink& on_residual) {
  Method<D, Space> method(simulation, options.problem());
  simulation.start();
  method.begin();
  const Index steps = iterate<D>(options, simulation, method, on_residual);
  Solution solution{simulation.stop("cg", steps), method.residual(), {}, {}};
  if (options.common.phases) {
    PartSeconds seconds = method.seconds();
    simulation.session().collectives->max(seconds);
    for (std::size_t i = 0; i < seconds.size(); ++i) solution.result.more.emplace_back(kPartNames[i], seconds[i]);
  }
  if (options.common.comm != apps::Comm::none) solution.true_residual = method.true_residual(options.problem());
  method.show_result();
  if (want_field) solution.cells = simulation.gather();
  return solution;
}

}  // namespace cg
