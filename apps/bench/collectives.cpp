// SPDX-License-Identifier: Apache-2.0
// Collectives, one after the other, by all ranks.
#include "apps/bench/benches.hpp"

#include <cstddef>

namespace bench {
namespace {

struct CollectiveRow {
  Collective collective;
  const char* metric;
  bool of_each_size;
};

constexpr CollectiveRow kCollectiveRows[] = {
    {Collective::barrier, "barrier", false},    {Collective::allreduce, "allreduce", true},
    {Collective::broadcast, "broadcast", true}, {Collective::allgather, "allgather", true},
    {Collective::alltoall, "alltoall", true},   {Collective::alltoallv, "alltoallv", true},
};

}  // namespace

void run_collectives(Session& session) {
  for (const CollectiveRow& row : kCollectiveRows) {
    const auto measure_size = [&](std::size_t bytes) {
      Workload workload = session.pair_workload(bytes, 1);
      workload.collective = row.collective;
      measure_row(session, workload, &Rival::collectives, make_collective(workload), {row.metric, "us", in_us},
                  session.budget());
    };
    if (!row.of_each_size) measure_size(0);
    for (const std::size_t bytes : session.options.sizes)
      if (row.of_each_size) measure_size(bytes);
  }
}

}  // namespace bench
