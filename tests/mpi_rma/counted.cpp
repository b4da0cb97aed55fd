// SPDX-License-Identifier: Apache-2.0
// The cost of calls that go the short way, of a rank to itself. Inside `count_system_calls`.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "tests/conformance/counting.hpp"
#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

const std::uint64_t g_one = 1;
std::uint64_t g_old = 0;

void put(MPI_Win window) { MPI_Put(&g_one, 1, MPI_UINT64_T, 0, 1, 1, MPI_UINT64_T, window); }

/// By the form with counts of type MPI_Count, where there is one.
void accumulate(MPI_Win window) {
#if MPI_VERSION >= 4
  MPI_Accumulate_c(&g_one, 1, MPI_UINT64_T, 0, 0, 1, MPI_UINT64_T, MPI_SUM, window);
#else
  MPI_Accumulate(&g_one, 1, MPI_UINT64_T, 0, 0, 1, MPI_UINT64_T, MPI_SUM, window);
#endif
}

/// A call inside of an epoch, if it has one, or with its own.
struct Counted {
  std::function<void(MPI_Win)> call;
  bool has_epoch = false;
};

Counted under_lock(int type, int assertion) {
  return {[type, assertion](MPI_Win window) {
            MPI_Win_lock(type, 0, assertion, window);
            put(window);
            MPI_Win_unlock(0, window);
          },
          true};
}

const std::map<std::string, Counted>& counted_calls() {
  static const std::map<std::string, Counted> all{
      {"put", {put}},
      {"get", {[](MPI_Win window) { MPI_Get(&g_old, 1, MPI_UINT64_T, 0, 1, 1, MPI_UINT64_T, window); }}},
      {"flush", {[](MPI_Win window) { MPI_Win_flush(0, window); }}},
      {"accumulate", {accumulate}},
      {"fetch_and_op", {[](MPI_Win window) { MPI_Fetch_and_op(&g_one, &g_old, MPI_UINT64_T, 0, 0, MPI_SUM, window); }}},
      {"get_accumulate", {[](MPI_Win window) {
         MPI_Get_accumulate(&g_one, 1, MPI_UINT64_T, &g_old, 1, MPI_UINT64_T, 0, 0, 1, MPI_UINT64_T, MPI_SUM, window);
       }}},
      {"compare_and_swap",
       {[](MPI_Win window) { MPI_Compare_and_swap(&g_one, &g_one, &g_old, MPI_UINT64_T, 0, 0, window); }}},
      {"exclusive", under_lock(MPI_LOCK_EXCLUSIVE, 0)},
      {"shared", under_lock(MPI_LOCK_SHARED, 0)},
      {"unchecked", under_lock(MPI_LOCK_EXCLUSIVE, MPI_MODE_NOCHECK)},
      {"posted",
       {[](MPI_Win window) {
          static const MPI_Group self = [] {
            MPI_Group group = MPI_GROUP_NULL;
            MPI_Comm_group(MPI_COMM_SELF, &group);
            return group;
          }();
          MPI_Win_post(self, 0, window);
          MPI_Win_start(self, 0, window);
          put(window);
          MPI_Win_complete(window);
          MPI_Win_wait(window);
        },
        true}},
  };
  return all;
}

}  // namespace

/// MPI_RMA_TEST_CALL: the one that is counted.
void run_counted() {
  const Counted& counted = counted_calls().at(std::getenv("MPI_RMA_TEST_CALL"));
  Shared<std::uint64_t> shared(2);
  if (!counted.has_epoch) MPI_Win_lock_all(0, shared.window);
  for (int i = 0; i < 5; ++i) counted.call(shared.window);
  sluice::test::begin_stepping();
  for (int i = 0; i < kCountedCalls; ++i) counted.call(shared.window);
  sluice::test::end_stepping();
  if (!counted.has_epoch) MPI_Win_unlock_all(shared.window);
}
