// SPDX-License-Identifier: Apache-2.0
// Rounds in which ranks send messages to others that do not expect them.
#include "apps/bench/benches.hpp"

namespace bench {
namespace {

constexpr long kRoundsOfSample = 100;

}  // namespace

void run_sparse_exchange(Session& session) {
  for (const std::size_t bytes : session.options.sizes) {
    const Workload workload = session.pair_workload(bytes, 1);
    Budget budget = session.budget();
    budget.batch = kRoundsOfSample;
    measure_row(session, workload, &Rival::sparse_exchange, make_sparse_exchange(workload), {"round", "us", in_us},
                budget);
  }
}

}  // namespace bench
