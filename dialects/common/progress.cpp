// SPDX-License-Identifier: Apache-2.0
#include "dialects/common/progress.hpp"

#include <mpi.h>

namespace sluice::stream_mpi {
namespace {

/// A request that is complete in MPI_Finalize. To look at it lets MPI make progress; an MPI_Iprobe that finds a message
/// may not.
MPI_Request g_incomplete = MPI_REQUEST_NULL;

extern "C" {
int sluice_stream_mpi_no_query(void*, MPI_Status*) { return MPI_SUCCESS; }
int sluice_stream_mpi_no_free(void*) { return MPI_SUCCESS; }
int sluice_stream_mpi_no_cancel(void*, int) { return MPI_SUCCESS; }
}

bool may_call_mpi() {
  int level = MPI_THREAD_SINGLE;
  PMPI_Query_thread(&level);
  if (level >= MPI_THREAD_SERIALIZED) return true;
  int is_main = 0;
  PMPI_Is_thread_main(&is_main);
  return is_main != 0;
}

void let_mpi_progress() noexcept {
  static thread_local const bool may_call = may_call_mpi();
  if (!may_call) return;
  int flag = 0;
  PMPI_Request_get_status(g_incomplete, &flag, MPI_STATUS_IGNORE);
}

}  // namespace

MpiProgress::MpiProgress() noexcept : meanwhile_(&let_mpi_progress) {}

void MpiProgress::prepare() {
  PMPI_Grequest_start(&sluice_stream_mpi_no_query, &sluice_stream_mpi_no_free, &sluice_stream_mpi_no_cancel, nullptr,
                      &g_incomplete);
}

void MpiProgress::end() noexcept {
  if (g_incomplete == MPI_REQUEST_NULL) return;
  PMPI_Grequest_complete(g_incomplete);
  PMPI_Request_free(&g_incomplete);
}

}  // namespace sluice::stream_mpi
