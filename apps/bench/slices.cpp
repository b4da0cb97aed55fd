// SPDX-License-Identifier: Apache-2.0
// Sums of arrays by slices of memory that several ranks map, beside the collective.
#include "apps/bench/benches.hpp"

#include <utility>
#include <vector>

namespace bench {
namespace {

std::vector<Entry> one_beside(const char* name, const char* what, Ours ours) {
  std::vector<Entry> beside;
  beside.push_back({name, what, std::move(ours.contender)});
  return beside;
}

}  // namespace

void run_slices(Session& session) {
  const int ranks = session.context.size();
  for (const std::size_t bytes : session.options.sizes) {
    Workload workload = session.pair_workload(bytes, 1);
    workload.collective = Collective::allreduce;
    measure_row(session, workload, &Rival::collectives, make_sum_of_slices(workload),
                {"allreduce by slices", "us", in_us}, session.budget(),
                one_beside("allreduce", "ours, the collective", make_collective(workload)));
    if (ranks < 4 || ranks % 2 != 0) continue;
    workload.sharers = ranks / 2;
    measure_row(session, workload, &Rival::collectives, make_sum_of_shared_slices(workload),
                {"allreduce of shared arrays", "us", in_us}, session.budget(),
                one_beside("owners", "ours, an allreduce of the arrays' owners", make_sum_by_owners(workload)));
  }
}

}  // namespace bench
