// SPDX-License-Identifier: Apache-2.0
// Kokkos Views with gaps between their elements: a column of ints that goes back and forth, and the faces of a cube.
#include "apps/bench/ours/packing.hpp"

#include "apps/bench/benches.hpp"

#include <fmt/core.h>

namespace bench {
namespace {

// One buffer at each end, as the rivals have.
constexpr int kPackingDepth = 1;

}  // namespace

void run_packing(Session& session) {
  const Metric one_way{.name = "every second int", .unit = "us", .value_of = half_in_us, .of_round_trips = true};
  for (const std::size_t bytes : session.options.sizes) {
    const Workload workload = session.pair_workload(bytes, kPackingDepth);
    measure_row(session, workload, &Rival::packing, make_column_ping_pong(workload), one_way, session.budget());
  }
  const Metric step{fmt::format("{} faces of {}^3", kCubeFaces, kCubeSide), "us", in_us};
  const Workload workload = session.pair_workload(kFaceBytes, kPackingDepth);
  measure_row(session, workload, &Rival::packing_faces, make_face_exchange(workload), step, session.budget());
}

}  // namespace bench
