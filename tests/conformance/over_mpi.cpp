// SPDX-License-Identifier: Apache-2.0
// Part of conformance_mpi: starts MPI in each process of ranks. There is no mpiexec, so a process is all of its MPI.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "tests/peers.hpp"

namespace {

void start_mpi() {
  int level = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE)
    return;
  std::fputs("MPI does not start with MPI_THREAD_MULTIPLE\n", stderr);
  std::abort();
}

[[maybe_unused]] const bool g_set = (sluice::test::before_ranks = &start_mpi, true);

}  // namespace
