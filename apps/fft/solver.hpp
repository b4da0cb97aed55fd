// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/lines.hpp"
#include "apps/common/pencils.hpp"
#include "apps/common/phases.hpp"
#include "apps/common/report.hpp"
#include "apps/common/session.hpp"
#include "apps/common/transposition.hpp"
#include "apps/common/work_queue.hpp"
#include "apps/fft/options.hpp"

#include <vector>

namespace fft {

using apps::Complex;
using apps::Direction;

/// One rank's part of transforms in three dimensions: lines along x, then a transposition, lines along y, another
/// transposition, lines along z; and the way back. The transform stays in pencils along z.
class Solver {
 public:
  Solver(sluice::Context& context, const Options& options);
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;
  ~Solver();

  /// Writes the initial cells.
  void set_initial();
  // Enqueued:
  void forward();
  void backward();
  /// Blocks the host until all that was enqueued has run.
  void synchronize() { session_.context.synchronize(queue_.stream()); }

  /// Starts the clock when all ranks are ready.
  void start();
  /// Waits for the steps and stops the clock.
  apps::Result stop();

  /// After `forward`, the transform at rank 0, row by row and plane by plane.
  std::vector<Complex> gather();
  /// After as many `backward` as `forward`: the largest difference from the initial cells, of all ranks.
  double error();

 private:
  /// A transposition, with the lines that are transformed before it and after it, slab by slab.
  struct Pass {
    apps::Transposition moved;
    std::vector<apps::Lines> before;
    std::vector<apps::Lines> after;
  };

  Pass pass(const char* name, int from, int to, Direction direction);
  void enqueue(const std::vector<Pass>& passes);
  void mark(apps::Phase phase);

  apps::Clock::time_point begin_;
  const Options options_;
  const apps::Pencils pencils_;
  apps::Session session_;
  apps::Buffers buffers_;
  apps::PhaseTimer phases_;
  apps::WorkQueue queue_;
  std::vector<Pass> forward_;
  std::vector<Pass> backward_;
  double create_s_ = 0;
};

}  // namespace fft
