// SPDX-License-Identifier: Apache-2.0
// A host stream from four sides; the rivals are driven by the host in every one.
#include "apps/bench/benches.hpp"
#include "apps/bench/host_queue.hpp"

#include <fmt/core.h>

#include <string>

namespace bench {
namespace {

double in_us(double ns) { return ns / 1e3; }

using Make = Ours (*)(const Case&, Drive);

struct Side {
  Metric metric;
  Make make;
  Drive drive;
  RivalColumn rivals;
  long batch;  // of samples; 0: an iteration, where it is long enough
};

void measure_side(Session& session, const Side& side) {
  Budget budget = session.budget();
  budget.batch = side.batch;
  for (const std::size_t bytes : session.options.sizes) {
    const Case one_case = session.pair_case(bytes, 2);
    measure_row(session, one_case, side.rivals, side.make(one_case, side.drive), side.metric, budget);
  }
}

// Nobody else has this side: hosts that drive their requests enqueue nothing.
void measure_enqueue(Session& session) {
  const Metric metric{"enqueue put+wait+release", "us", in_us};
  const Case one_case = session.pair_case(session.options.sizes.front(), 2);
  Ours ours = make_ping_pong(one_case, Drive::enqueue);
  Entry entry{"sluice", "ours", std::move(ours.contender)};
  Budget budget = session.budget();
  budget.batch = HostQueue::kMost;
  const Measurement measured = measure(session.team(), std::span(&entry, 1), budget);
  Row row = make_row(session, one_case, metric, ours.description, measured);
  if (session.report) session.report->add(std::move(row));
}

}  // namespace

void run_stream(Session& session) {
  const long ahead = HostQueue::kMost;
  measure_side(session, {{"round trip enqueued", "us", in_us}, make_ping_pong, Drive::ahead, &Rival::stream, ahead});
  measure_side(session, {{"round trip synchronised", "us", in_us}, make_ping_pong, Drive::stepwise, &Rival::stream, 0});
  const std::string halo = fmt::format("halo step enqueued, {} neighbours", session.options.neighbours);
  measure_side(session, {{halo, "us", in_us}, make_halo, Drive::ahead, &Rival::halo, ahead});
  measure_enqueue(session);
}

}  // namespace bench
