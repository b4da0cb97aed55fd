// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/benches.hpp"

namespace bench {
namespace {

// Measures a step that moves data and computes. A step that only moves data and one that only computes stand beside it
// like rivals: their ratios to the whole step show how much of one was hidden behind the other.
void measure_overlap(Session& session, std::size_t bytes) {
  Workload workload = session.pair_workload(bytes, 2);
  Ours moving = make_overlap(workload);
  workload.compute_ns = estimate(session.team(), *moving.contender);
  workload.tag = 1;
  Ours whole = make_overlap(workload);

  std::vector<Entry> parts;
  parts.push_back({"moving_alone", "ours without the computing", std::move(moving.contender)});
  parts.push_back({"computing_alone", "the computing, as long as moving alone took at first", make_compute(workload)});

  Budget budget = session.budget();
  budget.batch = 0;
  const Metric metric{"step with computing", "us", in_us};
  measure_row(session, workload, &Rival::overlap, std::move(whole), metric, budget, std::move(parts));
}

}  // namespace

void run_overlap(Session& session) {
  for (const std::size_t bytes : session.options.sizes) measure_overlap(session, bytes);
}

}  // namespace bench
