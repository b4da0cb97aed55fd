// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/benches.hpp"

namespace bench {
namespace {

// The step that only moves data, and the one that only computes, stand beside the whole as rivals do: their ratios to
// the whole say how much of the one was hidden behind the other.
void measure_overlap(Session& session, std::size_t bytes) {
  Case one_case = session.pair_case(bytes, 2);
  Ours moving = make_overlap(one_case);
  one_case.compute_ns = estimate(session.team(), *moving.contender);
  one_case.tag = 1;
  Ours whole = make_overlap(one_case);

  std::vector<Entry> entries;
  entries.push_back({"sluice", "ours", std::move(whole.contender)});
  entries.push_back({"moving_alone", "ours without the computing", std::move(moving.contender)});
  entries.push_back(
      {"computing_alone", "the computing, as long as moving alone took at first", make_compute(one_case)});
  for (const Rival* rival : rivals_for(session.options, &Rival::overlap))
    entries.push_back({rival->name, what(*rival, session.options), rival->overlap(one_case)});

  Budget budget = session.budget();
  budget.batch = 0;
  const Measurement measured = measure(session.team(), entries, budget);
  const Metric metric{"step with computing", "us", [](double step_ns) { return step_ns / 1e3; }};
  Row row = make_row(session, one_case, metric, whole.description, measured);
  if (session.report) session.report->add(std::move(row));
}

}  // namespace

void run_overlap(Session& session) {
  for (const std::size_t bytes : session.options.sizes) measure_overlap(session, bytes);
}

}  // namespace bench
