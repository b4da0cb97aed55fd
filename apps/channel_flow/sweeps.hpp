// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/channel_flow/problem.hpp"
#include "apps/common/host_exchange.hpp"
#include "apps/common/pencils.hpp"
#include "apps/common/work_queue.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace channel_flow {

using apps::Complex;

/// Solves the equations along z, one for each wave, in pencils along y, of which each rank has some planes: Thomas'
/// elimination upwards, then substitution downwards. A rank gets a plane from the neighbour below, or above, and passes
/// its own last one on. The waves are cut into slabs along x, so that ranks work on different ones at the same time.
class Sweeps {
 public:
  /// @param cells  the first cell of the pencil along y: the right-hand sides, which become the solution
  Sweeps(apps::Session& session, const apps::Pencils& pencils, int slabs, Complex* cells, apps::WorkQueue& queue);

  /// Enqueues both sweeps.
  void solve();
  /// Closes the exchanges. Work of this that the stream still has may run.
  void close() noexcept;

 private:
  /// A plane of some lines from a neighbour, or to one.
  struct Passage {
    sluice::Slice slots;
    std::unique_ptr<apps::Exchange> exchange;
    Complex* plane(int slot) const { return reinterpret_cast<Complex*>(apps::Link{0, slots}.slot(slot)); }
  };
  struct Slab {
    Index first = 0;  // wave of this rank
    Index count = 0;
    std::array<Passage, 2> come;  // up, then down
    std::array<Passage, 2> go;
  };

  Passage passage(apps::Session& session, const std::string& name, int peer, bool out, Index count);
  void sweep(Slab& slab, bool up);
  void eliminate(const Slab& slab, const Complex* below);
  void substitute(const Slab& slab, const Complex* above);

  Complex* cells_;
  Index waves_;                        // of a plane
  Index planes_;                       // of this rank
  std::array<bool, 2> has_neighbour_;  // below, above
  std::vector<double> factors_;        // of the elimination: plane by plane, wave by wave
  double* factor(Index plane) { return factors_.data() + plane * waves_; }
  apps::WorkQueue& queue_;
  std::vector<Slab> slabs_;
};

}  // namespace channel_flow
