// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/channel_flow/sweeps.hpp"
#include "apps/common/lines.hpp"
#include "apps/common/transposition.hpp"

#include <string>
#include <vector>

namespace channel_flow {

/// Solves Poisson's equation for the pressure: transforms along x, a transposition, transforms along y, sweeps along z,
/// and the way back.
class Pressure {
 public:
  Pressure(apps::Session& session, const apps::Pencils& pencils, int slabs, apps::WorkQueue& queue);
  Pressure(const Pressure&) = delete;
  Pressure& operator=(const Pressure&) = delete;

  /// The right-hand side, and then the pressure: the cells of the pencil along x. Its pressure is larger by `scale`.
  Complex* cells() { return buffers_.first.data(); }
  double scale() const { return scale_; }

  /// Enqueues the solution.
  void solve(const apps::Mark& mark);
  std::string describe() const { return to_y_.describe(); }
  /// Closes the exchanges. Work of this that the stream still has may run.
  void close() noexcept;

 private:
  apps::WorkQueue& queue_;
  double scale_;
  apps::Buffers buffers_;
  apps::Transposition to_y_;
  apps::Transposition to_x_;
  Sweeps sweeps_;
  std::vector<apps::Lines> x_forward_;
  std::vector<apps::Lines> y_forward_;
  std::vector<apps::Lines> y_backward_;
  std::vector<apps::Lines> x_backward_;
};

}  // namespace channel_flow
