// SPDX-License-Identifier: Apache-2.0
// Ranks and cores of several hosts, which MPI sees where MPIR_CVAR_ODD_EVEN_CLIQUES=1: ranks with odd numbers are on
// one, those with even numbers on another one.
#include <sched.h>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

/// The first two cores that this rank may use. False: it has only one.
bool find_cores(int (&cores)[2]) {
  cpu_set_t all;
  CPU_ZERO(&all);
  sched_getaffinity(0, sizeof all, &all);
  int found = 0;
  for (int core = 0; core < CPU_SETSIZE && found < 2; ++core)
    if (CPU_ISSET(core, &all)) cores[found++] = core;
  return found == 2;
}

/// Binds this rank to the first `count` of the cores from `first` on, and uses a window.
void use_bound(int first, int count) {
  int cores[2] = {};
  if (!find_cores(cores)) {
    if (world_rank() == 0) std::printf("one core\n");
    return;
  }
  cpu_set_t mine;
  CPU_ZERO(&mine);
  for (int i = first; i < first + count; ++i) CPU_SET(cores[i], &mine);
  sched_setaffinity(0, sizeof mine, &mine);
  Shared<int> shared(1);
  const int rank = world_rank();
  MPI_Win_fence(0, shared.window);
  MPI_Put(&rank, 1, MPI_INT, (rank + 1) % world_size(), 0, 1, MPI_INT, shared.window);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, shared.window);
  expect_equal(shared.memory[0], (rank + world_size() - 1) % world_size(), "what was put");
}

}  // namespace

/// The ranks of each host have one core.
void run_hosts_crowded() { use_bound(world_rank() % 2, 1); }
/// The ranks of each host have two cores, as many as the ranks of a host among four.
void run_hosts_roomy() { use_bound(0, 2); }
