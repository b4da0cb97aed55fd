// SPDX-License-Identifier: Apache-2.0
// Inserts into a hash table that is spread over all ranks.
#include "apps/bench/benches.hpp"

#include "apps/bench/harness/hash_table.hpp"

namespace bench {
namespace {

constexpr long kKeysOfSample = 1000;  // at the end of which the ranks meet: a table

}  // namespace

void run_hash_table(Session& session) {
  const Workload workload = session.pair_workload(sizeof(Word), 1);
  Budget budget = session.budget();
  budget.batch = kKeysOfSample;
  measure_row(session, workload, &Rival::hash_table, make_hash_table(workload), {"insert", "us", in_us}, budget);
}

}  // namespace bench
