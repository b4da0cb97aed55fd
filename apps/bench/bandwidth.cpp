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
    Case one_case = session.pair_case(bytes, kBandwidthDepth);
    one_case.window = session.options.window > 0 ? session.options.window : kWindow;
    const double moved = static_cast<double>(bytes) * one_case.window;
    const Metric metric{"bandwidth", "MB/s", [moved](double window_ns) { return moved / window_ns * 1e3; }};
    Budget budget = session.budget();
    budget.batch = 1;
    measure_row(session, one_case, &Rival::bandwidth, make_flood(one_case), metric, budget);
  }
}

}  // namespace bench
