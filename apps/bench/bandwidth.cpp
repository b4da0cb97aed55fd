// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/benches.hpp"

#include "apps/common/usage_error.hpp"

namespace bench {
namespace {

constexpr int kBandwidthDepth = 8;
constexpr int kWindow = 64;

}  // namespace

void run_bandwidth(Session& session) {
  for (const std::size_t bytes : session.options.sizes) {
    Workload workload = session.pair_workload(bytes, kBandwidthDepth);
    workload.window = session.options.window > 0 ? session.options.window : kWindow;
    const double window_bytes = static_cast<double>(bytes) * workload.window;
    // Bytes per nanosecond are GB/s.
    const Metric metric{"bandwidth", "MB/s",
                        [window_bytes](double window_ns) { return window_bytes / window_ns * 1e3; }};
    Budget budget = session.budget();
    budget.batch = 1;
    measure_row(session, workload, &Rival::bandwidth, make_flood(workload), metric, budget);
  }
}

}  // namespace bench
