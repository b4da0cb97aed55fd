// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/benches.hpp"

namespace bench {
namespace {

constexpr int kRateWindow = 64;

}  // namespace

void run_rate(Session& session) {
  const int window = session.options.window > 0 ? session.options.window : kRateWindow;
  // Messages per nanosecond are thousand millions per second.
  const Metric metric{"message rate", "million/s", [window](double window_ns) { return window / window_ns * 1e3; }};
  for (const std::size_t bytes : session.options.sizes) {
    Workload workload = session.pair_workload(bytes, window);
    workload.window = window;
    measure_row(session, workload, &Rival::rate, make_flood(workload), metric, session.budget());
  }
}

}  // namespace bench
