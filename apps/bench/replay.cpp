// SPDX-License-Identifier: Apache-2.0
// A plan that was captured into a graph and is replayed, beside the same plan whose verbs are called again and again.
#include "apps/bench/benches.hpp"

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

// With one, a put would wait for the credit of the last. A graph has as many steps.
constexpr int kReplayDepth = 2;

double in_us(double ns) { return ns / 1e3; }

struct Side {
  Metric metric;
  Ours (*make)(const Case&);
  RivalColumn rivals;
  Drive replayed;
  Drive eager;
};

void measure_side(Session& session, const Side& side, std::size_t bytes) {
  Case one_case = session.pair_case(bytes, kReplayDepth);
  one_case.drive = side.eager;
  std::vector<Entry> eager;
  eager.push_back({"eager", "ours, by a plan that was not captured", side.make(one_case).contender});
  one_case.drive = side.replayed;
  one_case.tag = static_cast<sluice::Tag>(one_case.neighbours);
  // Of the enqueueing, as much a round as is enqueued at once: how long that has then to run does not count.
  Budget budget = session.budget();
  if (side.replayed == Drive::enqueue_replay && budget.iterations == 0) budget.iterations = budget.batch;
  measure_row(session, one_case, side.rivals, side.make(one_case), side.metric, budget, std::move(eager));
}

}  // namespace

void run_replay(Session& session) {
  const std::string step = fmt::format("step, {} neighbours", session.options.neighbours);
  const Side latency{{"latency", "us", [](double round_trip_ns) { return round_trip_ns / 2e3; }},
                     make_plan_ping_pong,
                     &Rival::replay,
                     Drive::replayed,
                     Drive::ahead};
  const Side halo{{step, "us", in_us}, make_halo, &Rival::replay_halo, Drive::replayed, Drive::ahead};
  for (const std::size_t bytes : session.options.sizes) measure_side(session, latency, bytes);
  for (const std::size_t bytes : session.options.sizes) measure_side(session, halo, bytes);
  // What enqueueing costs does not depend on how long a message is.
  const Side one{{"enqueue step, 1 neighbour", "us", in_us},
                 make_plan_ping_pong,
                 &Rival::replay,
                 Drive::enqueue_replay,
                 Drive::enqueue};
  const Side all{
      {"enqueue " + step, "us", in_us}, make_halo, &Rival::replay_halo, Drive::enqueue_replay, Drive::enqueue};
  for (const Side& side : {one, all}) measure_side(session, side, session.options.sizes.front());
}

}  // namespace bench
