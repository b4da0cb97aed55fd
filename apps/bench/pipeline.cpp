// SPDX-License-Identifier: Apache-2.0
// A ring of ranks, each of which enqueues on a host stream while the stream runs; with as many slots, the same steps in
// program order and by MPI.
#include "apps/bench/benches.hpp"

#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr int kDepths[] = {4, 16};
constexpr long kStepsAtOnce = 1000;

void measure_pipeline(Session& session, std::size_t bytes, int depth) {
  Workload workload = session.pair_workload(bytes, depth);
  workload.drive = Drive::in_order;
  std::vector<Entry> in_order;
  in_order.push_back({"program_order", "ours, the same steps in program order", make_ring(workload).contender});
  workload.drive = Drive::pipelined;
  workload.tag = 1;
  Budget budget = session.budget();
  budget.batch = kStepsAtOnce;
  measure_row(session, workload, &Rival::pipeline, make_ring(workload), {"step", "us", in_us}, budget,
              std::move(in_order));
}

}  // namespace

void run_pipeline(Session& session) {
  for (const int depth : kDepths) {
    for (const std::size_t bytes : session.options.sizes) measure_pipeline(session, bytes, depth);
    if (session.options.depth > 0) return;  // which holds for all rows
  }
}

}  // namespace bench
