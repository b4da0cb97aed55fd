// SPDX-License-Identifier: Apache-2.0
// Common to the calls that stand before MPI's.
#pragma once

#include "rma/mpi/behind.hpp"
#include "rma/mpi/epochs.hpp"
#include "rma/mpi/pause.hpp"
#include "rma/mpi/rma_window.hpp"
#include "rma/mpi/windows.hpp"

#include <mpi.h>

#include <mutex>

namespace sluice::mpi_rma {

/// Calls the window's error handler with the class of the exception that is being handled. Returns the class.
int report(MPI_Win handle) noexcept;
/// As `report`, for a window that was not made: calls the communicator's error handler.
int report_unmade(MPI_Comm comm) noexcept;

/// Reports MPI_ERR_RMA_FLAVOR, since MPI serves the window: calls about notifications.
int refuse_unserved(MPI_Win handle) noexcept;

/// The rank to name to MPI, whose window of one of ours has this rank alone: each valid rank is rank 0 there.
int rank_at_mpi(MPI_Win handle, int rank);

/// Runs `work(window, lock)` with the lock of the window. Exceptions go to the window's error handler.
template <class Work>
int serve(RmaWindow& window, Work work) {
  try {
    Epochs::Lock lock(window.mutex);
    work(window, lock);
    return MPI_SUCCESS;
  } catch (...) {
    return report(window.handle);
  }
}

/// The end of a call that completes accesses, and that a program may repeat until a peer has done something. May leave
/// the lock.
inline void poll_if_due(RmaWindow& window, Epochs::Lock& lock) {
  if (!window.areas->poll_due()) return;
  lock.unlock();
  poll(*window.ranks);
}

/// A request that is complete.
int finished_request(MPI_Request* request);

}  // namespace sluice::mpi_rma

/// Passes a call that is not Sluice's on. `name`: without MPI_.
#define SLUICE_RMA_BEHIND(name, ...) SLUICE_RMA_BEHIND_NAME(name, __VA_ARGS__)
#define SLUICE_RMA_BEHIND_NAME(name, ...)                                               \
  do {                                                                                  \
    static auto* const next_call = sluice::mpi_rma::behind("MPI_" #name, &PMPI_##name); \
    return next_call(__VA_ARGS__);                                                      \
  } while (false)
