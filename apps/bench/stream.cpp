// SPDX-License-Identifier: Apache-2.0
// A stream measured in several ways. On a host stream the host drives the rivals in each of them.
#include "apps/bench/benches.hpp"

#include <fmt/core.h>

#include <string>

namespace bench {
namespace {

double in_us(double ns) { return ns / 1e3; }

using Make = Ours (*)(const Workload&);

struct Side {
  Metric metric;
  Make make;
  Drive drive;
  RivalColumn rivals;
  long batch;  // of samples; 0: an iteration, if it is long enough
};

void measure_side(Session& session, const Side& side, std::size_t bytes) {
  Budget budget = session.budget();
  budget.batch = side.batch;
  Workload workload = session.pair_workload(bytes, 2);
  workload.drive = side.drive;
  measure_row(session, workload, side.rivals, side.make(workload), side.metric, budget);
}

void measure_sizes(Session& session, const Side& side) {
  for (const std::size_t bytes : session.options.sizes) measure_side(session, side, bytes);
}

// The time to enqueue does not depend on the length of a message. Hosts that drive their requests enqueue nothing.
void measure_enqueue(Session& session, const char* verbs, Drive drive) {
  const Side side{
      {std::string("enqueue ") + verbs, "us", in_us}, make_ping_pong, drive, &Rival::enqueue, session.batch()};
  measure_side(session, side, session.options.sizes.front());
}

}  // namespace

void run_stream(Session& session) {
  const long ahead = session.batch();
  measure_sizes(session, {{"round trip enqueued", "us", in_us}, make_ping_pong, Drive::ahead, &Rival::stream, ahead});
  measure_sizes(session,
                {{"round trip synchronised", "us", in_us}, make_ping_pong, Drive::stepwise, &Rival::stream, 0});
  const std::string halo = fmt::format("halo step enqueued, {} neighbours", session.options.neighbours);
  measure_sizes(session, {{halo, "us", in_us}, make_halo, Drive::ahead, &Rival::halo, ahead});
  // On a host stream a verb takes no longer than reading the clock: they are timed together.
  if (!of_gpu(session.options.stream)) return measure_enqueue(session, "put+wait+release", Drive::enqueue);
  measure_enqueue(session, "put", Drive::enqueue_put);
  measure_enqueue(session, "wait", Drive::enqueue_wait);
  measure_enqueue(session, "release", Drive::enqueue_release);
}

}  // namespace bench
