// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/benches.hpp"

#include <fmt/core.h>

namespace bench {

void run_halo(Session& session) {
  const Metric metric{fmt::format("step, {} neighbours", session.options.neighbours), "us", in_us};
  for (const std::size_t bytes : session.options.sizes) {
    const Workload workload = session.pair_workload(bytes, 2);
    measure_row(session, workload, &Rival::halo, make_halo(workload), metric, session.budget());
  }
}

}  // namespace bench
