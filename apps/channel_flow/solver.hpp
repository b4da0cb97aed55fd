// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/channel_flow/flow.hpp"
#include "apps/channel_flow/halo.hpp"
#include "apps/channel_flow/options.hpp"
#include "apps/channel_flow/pressure.hpp"
#include "apps/common/phases.hpp"
#include "apps/common/report.hpp"
#include "apps/common/session.hpp"
#include "apps/common/work_queue.hpp"

#include <array>
#include <vector>

namespace channel_flow {

/// One rank's part of a flow: a step spreads the velocity by viscosity, and takes off the gradient of the pressure that
/// makes it free of divergence (Chorin: Numerical Solution of the Navier-Stokes Equations, 1968), on staggered cells.
class Solver {
 public:
  Solver(sluice::Context& context, const Options& options);
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;
  ~Solver();

  /// Sets the initial velocity, and starts the clock when all ranks are ready.
  void start();
  /// Enqueues a step.
  void step();
  /// Waits for the steps and stops the clock.
  apps::Result stop();

  /// The largest divergence of a cell, of all ranks.
  double divergence();
  /// A component of the velocity at rank 0, row by row and plane by plane.
  std::vector<double> gather(int component);

 private:
  void exchange(Halo& halo);
  void mark(apps::Phase phase);
  void run(apps::Phase phase, auto work) {
    queue_.run(std::move(work));
    mark(phase);
  }
  void synchronize() { session_.context.synchronize(queue_.stream()); }

  apps::Clock::time_point begin_;
  const Options options_;
  const apps::Pencils pencils_;
  apps::Session session_;
  const Flow flow_;
  Velocity velocity_;
  Velocity predicted_;
  Field pressure_;
  apps::PhaseTimer phases_;
  apps::WorkQueue queue_;
  Pressure poisson_;
  Halo velocity_halo_;
  Halo predicted_halo_;
  Halo pressure_halo_;
  double create_s_ = 0;
};

}  // namespace channel_flow
