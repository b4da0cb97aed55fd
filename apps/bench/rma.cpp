// SPDX-License-Identifier: Apache-2.0
// Accesses to the window of a peer, each of them completed before the next one, and epochs.
#include "apps/bench/benches.hpp"

#include "apps/bench/harness/accesses.hpp"
#include "apps/bench/rivals/mpi.hpp"

#include <utility>
#include <vector>

namespace bench {
namespace {

// Long accesses have samples of many units too, for after each sample the ranks wait for each other, and the owner
// reads what was put.
constexpr long kUnitsOfSample = 1000;
constexpr long kFreshSamples = 20;  // of a round: each is all the blocks that an owner writes at once
constexpr std::size_t kWordBytes = 8;
constexpr std::size_t kLineBytes = 64;

/// A row, or one for each size.
struct AccessRow {
  Access access;
  const char* metric;
  std::size_t min_bytes;  ///< of its sizes; smaller ones are left out
  bool of_each_size;      ///< false: of `min_bytes` alone
};

constexpr AccessRow kRows[] = {
    {Access::put, "put and flush", kWordBytes, true},
    {Access::get, "get and flush", kWordBytes, true},
    {Access::fresh_get, "get of what was just written", kLineBytes, true},
    {Access::accumulate, "accumulate and flush", kWordBytes, true},
    {Access::notice, "put and notice", kWordBytes, true},
    {Access::put_notify, "put_notify", kWordBytes, true},
    {Access::get_notify, "get_notify", kWordBytes, true},
    {Access::fetch_add, "fetch_add", kWordBytes, false},
    {Access::compare_swap, "compare_swap", kWordBytes, false},
    {Access::flush, "flush alone", 0, false},
    {Access::fence, "put and fence", kWordBytes, false},
    {Access::post, "put between post and wait", kWordBytes, false},
    {Access::lock_exclusive, "exclusive lock, put, unlock", kWordBytes, false},
    {Access::lock_shared, "shared lock, put, unlock", kWordBytes, false},
};

Budget budget_of(const Session& session, const Workload& workload) {
  Budget budget = session.budget();
  const bool both_step = workload.access == Access::fence || workload.access == Access::post;
  if (both_step || is_round_trip(workload.access)) return budget;
  budget.batch = kUnitsOfSample;
  if (workload.access != Access::fresh_get) return budget;
  budget.batch = static_cast<long>(AccessLayout(workload.bytes).blocks);
  if (budget.iterations == 0) budget.iterations = kFreshSamples * budget.batch;
  return budget;
}

void measure_accesses(Session& session, const AccessRow& row, std::size_t bytes) {
  Workload workload = session.pair_workload(bytes, 1);
  workload.access = row.access;
  std::vector<Entry> beside;
  if (row.access == Access::fetch_add || row.access == Access::compare_swap) {
    Workload of_calls = workload;
    of_calls.tag = 1;  // a window and channels of its own
    beside.push_back({"sluice_call", "ours, by the call that blocks the host and returns the value",
                      make_blocking_accesses(of_calls).contender});
  }
  const Metric time{row.metric, "us", is_round_trip(row.access) ? half_in_us : in_us};
  measure_row(session, workload, &Rival::rma, make_accesses(workload), time, budget_of(session, workload),
              std::move(beside));
}

// MPI's calls are measured as ours, beside the same accesses by the C++ interface.
void measure_mpi_windows(Session& session, const AccessRow& row, std::size_t bytes) {
  Workload workload = session.pair_workload(bytes, 1);
  workload.access = row.access;
  Ours by_interface = make_accesses(workload);
  std::vector<Entry> beside;
  beside.push_back({"sluice_api", "Target and CollectiveWindow", std::move(by_interface.contender)});
  measure_row(session, workload, &Rival::rma, {make_mpi_accesses(workload), by_interface.description},
              {row.metric, "us", in_us}, budget_of(session, workload), std::move(beside));
}

template <class Measure>
void measure_sizes_of(Session& session, const AccessRow& row, Measure measure_one) {
  if (!row.of_each_size) return measure_one(session, row, row.min_bytes);
  for (const std::size_t bytes : session.options.sizes) {
    if (bytes >= row.min_bytes) measure_one(session, row, bytes);
  }
}

}  // namespace

void run_rma(Session& session) {
  for (const AccessRow& row : kRows) measure_sizes_of(session, row, measure_accesses);
}

void run_mpi_windows(Session& session) {
  for (const AccessRow& row : kRows) {
    if (row.access != Access::fresh_get && !is_round_trip(row.access))
      measure_sizes_of(session, row, measure_mpi_windows);
  }
}

}  // namespace bench
