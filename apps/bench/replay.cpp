// SPDX-License-Identifier: Apache-2.0
// Steps of a plan that was captured into a graph, which is launched again and again; compared with the same plan
// without a graph, whose verbs are called in each step.
#include "apps/bench/benches.hpp"

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

// With one slot, each put would wait for the credit of the previous one. A graph has as many steps as a channel has
// slots.
constexpr int kReplayDepth = 2;

struct ReplayRow {
  Metric metric;
  Ours (*make)(const Workload&);
  RivalColumn rivals;
  Drive replayed;  ///< with a graph
  Drive eager;     ///< without one
};

void measure_replay(Session& session, const ReplayRow& row, std::size_t bytes) {
  Workload workload = session.pair_workload(bytes, kReplayDepth);
  workload.drive = row.eager;
  std::vector<Entry> eager;
  eager.push_back({"eager", "ours, by a plan that was not captured", row.make(workload).contender});
  workload.drive = row.replayed;
  workload.tag = static_cast<sluice::Tag>(workload.neighbours);
  // If only the enqueueing is measured, a round is one batch: more batches would take much longer than a round's 10
  // ms, because each of them must also run.
  Budget budget = session.budget();
  if (row.replayed == Drive::enqueue_replay && budget.iterations == 0) budget.iterations = budget.batch;
  measure_row(session, workload, row.rivals, row.make(workload), row.metric, budget, std::move(eager));
}

}  // namespace

void run_replay(Session& session) {
  const std::string step = fmt::format("step, {} neighbours", session.options.neighbours);
  const ReplayRow latency{
      {"latency", "us", half_in_us}, make_plan_ping_pong, &Rival::replay, Drive::replayed, Drive::ahead};
  const ReplayRow halo{{step, "us", in_us}, make_halo, &Rival::replay_halo, Drive::replayed, Drive::ahead};
  for (const std::size_t bytes : session.options.sizes) measure_replay(session, latency, bytes);
  for (const std::size_t bytes : session.options.sizes) measure_replay(session, halo, bytes);
  // The time to enqueue does not depend on the length of a message.
  const ReplayRow one{{"enqueue step, 1 neighbour", "us", in_us},
                      make_plan_ping_pong,
                      &Rival::replay,
                      Drive::enqueue_replay,
                      Drive::enqueue};
  const ReplayRow all{
      {"enqueue " + step, "us", in_us}, make_halo, &Rival::replay_halo, Drive::enqueue_replay, Drive::enqueue};
  for (const ReplayRow& row : {one, all}) measure_replay(session, row, session.options.sizes.front());
}

}  // namespace bench
