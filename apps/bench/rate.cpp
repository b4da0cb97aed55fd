// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/benches.hpp"

namespace bench {
namespace {

constexpr int kRateWindow = 64;

}  // namespace

void run_rate(Session& session) {
  const int window = session.options.window > 0 ? session.options.window : kRateWindow;
  const Metric metric{"message rate", "million/s", [window](double window_ns) { return window / window_ns * 1e3; }};
  for (const std::size_t bytes : session.options.sizes) {
    Case one_case = session.pair_case(bytes, window);
    one_case.window = window;
    measure_row(session, one_case, &Rival::rate, make_flood(one_case), metric, session.budget());
  }
}

}  // namespace bench
