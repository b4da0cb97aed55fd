// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/calls.hpp"

#include <sluice/error.hpp>

#include <exception>
#include <string>

#include "rma/mpi/log.hpp"
#include "rma/mpi/refused.hpp"

namespace sluice::mpi_rma {
namespace {

extern "C" int sluice_rma_query(void*, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
extern "C" int sluice_rma_free(void*) { return MPI_SUCCESS; }
extern "C" int sluice_rma_cancel(void*, int) { return MPI_SUCCESS; }

int class_of(const Error& error) {
  if (error.code() == Code::closed) return MPI_ERR_RMA_RANGE;  // memory that was detached
  return error.code() == Code::out_of_resources ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
}

/// Logs the exception that is being handled, and returns its class.
int log_failure() noexcept {
  int error_class = MPI_ERR_OTHER;
  std::string why;
  Level level = Level::error;
  try {
    throw;
  } catch (const Refused& refused) {
    error_class = refused.error_class();
    why = refused.what();
    level = Level::info;
  } catch (const Error& error) {
    error_class = class_of(error);
    why = error.what();
  } catch (const std::exception& reason) {
    why = reason.what();
  }
  log(level, "a window of MPI's: " + why);
  return error_class;
}

}  // namespace

int report(MPI_Win handle) noexcept {
  const int error_class = log_failure();
  PMPI_Win_call_errhandler(handle, error_class);
  return error_class;
}

int refuse_unserved(MPI_Win handle) noexcept {
  log(Level::info, "a window of MPI's that MPI serves itself has no notifications");
  PMPI_Win_call_errhandler(handle, MPI_ERR_RMA_FLAVOR);
  return MPI_ERR_RMA_FLAVOR;
}

int rank_at_mpi(MPI_Win handle, int rank) {
  const RmaWindow* const window = find_window(handle);
  return window != nullptr && rank > 0 && rank < window->size ? 0 : rank;
}

int report_unmade(MPI_Comm comm) noexcept {
  const int error_class = log_failure();
  PMPI_Comm_call_errhandler(comm, error_class);
  return error_class;
}

int finished_request(MPI_Request* request) {
  const int result = PMPI_Grequest_start(&sluice_rma_query, &sluice_rma_free, &sluice_rma_cancel, nullptr, request);
  return result == MPI_SUCCESS ? PMPI_Grequest_complete(*request) : result;
}

}  // namespace sluice::mpi_rma
