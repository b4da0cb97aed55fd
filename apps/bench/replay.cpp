// SPDX-License-Identifier: Apache-2.0
// A plan that was captured into a graph and is replayed, compared with the same plan whose verbs are called again and
// again.
#include "apps/bench/benches.hpp"

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

// With one slot, a put would wait for the credit of the previous put. A graph has as many steps.
constexpr int kReplayDepth = 2;

double us_of(double ns) { return ns / 1e3; }

struct ReplayRow {
  Metric metric;
  Ours (*make)(const Workload&);
  RivalColumn rivals;
  Drive replayed;
  Drive eager;
};

void measure_replay(Session& session, const ReplayRow& side, std::size_t bytes) {
  Workload workload = session.pair_workload(bytes, kReplayDepth);
  workload.drive = side.eager;
  std::vector<Entry> eager;
  eager.push_back({"eager", "ours, by a plan that was not captured", side.make(workload).contender});
  workload.drive = side.replayed;
  workload.tag = static_cast<sluice::Tag>(workload.neighbours);
  // A round of enqueueing is what is enqueued at once: the time in which it then runs is not measured.
  Budget budget = session.budget();
  if (side.replayed == Drive::enqueue_replay && budget.iterations == 0) budget.iterations = budget.batch;
  measure_row(session, workload, side.rivals, side.make(workload), side.metric, budget, std::move(eager));
}

}  // namespace

void run_replay(Session& session) {
  const std::string step = fmt::format("step, {} neighbours", session.options.neighbours);
  const ReplayRow latency{{"latency", "us", [](double round_trip_ns) { return round_trip_ns / 2e3; }},
                          make_plan_ping_pong,
                          &Rival::replay,
                          Drive::replayed,
                          Drive::ahead};
  const ReplayRow halo{{step, "us", us_of}, make_halo, &Rival::replay_halo, Drive::replayed, Drive::ahead};
  for (const std::size_t bytes : session.options.sizes) measure_replay(session, latency, bytes);
  for (const std::size_t bytes : session.options.sizes) measure_replay(session, halo, bytes);
  // The time to enqueue does not depend on the length of a message.
  const ReplayRow one{{"enqueue step, 1 neighbour", "us", us_of},
                      make_plan_ping_pong,
                      &Rival::replay,
                      Drive::enqueue_replay,
                      Drive::enqueue};
  const ReplayRow all{
      {"enqueue " + step, "us", us_of}, make_halo, &Rival::replay_halo, Drive::enqueue_replay, Drive::enqueue};
  for (const ReplayRow& side : {one, all}) measure_replay(session, side, session.options.sizes.front());
}

}  // namespace bench
