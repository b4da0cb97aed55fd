// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/benches.hpp"

#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr int kRateWindow = 64;

}  // namespace

void run_rate(Session& session) {
  const int window = session.options.window > 0 ? session.options.window : kRateWindow;
  // Messages per nanosecond are thousand millions per second.
  const Metric metric{"message rate", "million/s", [window](double window_ns) { return window / window_ns * 1e3; }};
  Metric of_batches = metric;
  of_batches.name = "message rate by batches";
  for (const std::size_t bytes : session.options.sizes) {
    Workload workload = session.pair_workload(bytes, window);
    workload.window = window;
    measure_row(session, workload, &Rival::rate, make_flood(workload), metric, session.budget());
    if (!session.options.batch) continue;
    Workload of_singles = workload;
    of_singles.tag = 2;  // channels of their own beside those of the batches
    std::vector<Entry> singles;
    singles.push_back({"sluice_each", "ours, a put, a wait and a release a message", make_flood(of_singles).contender});
    measure_row(session, workload, &Rival::rate, make_batch_flood(workload), of_batches, session.budget(),
                std::move(singles));
  }
}

}  // namespace bench
