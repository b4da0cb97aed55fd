// SPDX-License-Identifier: Apache-2.0
// Several measurements of one stream, a row each. On a host stream the rivals are driven by the host in all of them.
#include "apps/bench/benches.hpp"

#include <fmt/core.h>

#include <string>

namespace bench {
namespace {

using Make = Ours (*)(const Workload&);

/// One measurement.
struct StreamRow {
  Metric metric;
  Make make;
  Drive drive;
  RivalColumn rivals;
  long batch;  ///< see Budget
};

void measure_size(Session& session, const StreamRow& row, std::size_t bytes) {
  Budget budget = session.budget();
  budget.batch = row.batch;
  Workload workload = session.pair_workload(bytes, 2);
  workload.drive = row.drive;
  measure_row(session, workload, row.rivals, row.make(workload), row.metric, budget);
}

void measure_sizes(Session& session, const StreamRow& row) {
  for (const std::size_t bytes : session.options.sizes) measure_size(session, row, bytes);
}

// Only one size, because the time to enqueue does not depend on it. A rival whose requests the host drives enqueues
// nothing, so it has no such row.
void measure_enqueue(Session& session, const char* verbs, Drive drive) {
  const StreamRow row{
      {std::string("enqueue ") + verbs, "us", in_us}, make_ping_pong, drive, &Rival::enqueue, session.batch()};
  measure_size(session, row, session.options.sizes.front());
}

}  // namespace

void run_stream(Session& session) {
  const long ahead = session.batch();
  measure_sizes(session, {{"round trip enqueued", "us", in_us}, make_ping_pong, Drive::ahead, &Rival::stream, ahead});
  measure_sizes(session,
                {{"round trip synchronised", "us", in_us}, make_ping_pong, Drive::stepwise, &Rival::stream, 0});
  const std::string halo = fmt::format("halo step enqueued, {} neighbours", session.options.neighbours);
  measure_sizes(session, {{halo, "us", in_us}, make_halo, Drive::ahead, &Rival::halo, ahead});
  // On a host stream a verb takes no longer than reading the clock does, so all verbs of a step are timed together.
  if (!of_gpu(session.options.stream)) return measure_enqueue(session, "put+wait+release", Drive::enqueue);
  measure_enqueue(session, "put", Drive::enqueue_put);
  measure_enqueue(session, "wait", Drive::enqueue_wait);
  measure_enqueue(session, "release", Drive::enqueue_release);
}

}  // namespace bench
