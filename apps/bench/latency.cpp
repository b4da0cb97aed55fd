// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/benches.hpp"

namespace bench {
namespace {

// One slot, because the rivals have one target buffer: with two, large messages would need twice as much cache.
constexpr int kLatencyDepth = 1;

}  // namespace

void run_latency(Session& session) {
  const Metric one_way{.name = "latency", .unit = "us", .value_of = half_in_us, .of_round_trips = true};
  for (const std::size_t bytes : session.options.sizes) {
    const Workload workload = session.pair_workload(bytes, kLatencyDepth);
    measure_row(session, workload, &Rival::latency, make_ping_pong(workload), one_way, session.budget());
  }
}

}  // namespace bench
