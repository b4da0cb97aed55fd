// SPDX-License-Identifier: Apache-2.0
// MPI's calls for the counters of notifications, and ours for streams.
#include <sluice/mpi_rma.h>
#include <sluice/c/stream.hpp>

#include "rma/mpi/calls.hpp"
#include "rma/mpi/refused.hpp"

namespace sluice::mpi_rma {
namespace {

/// Runs `work` on a window that Sluice serves.
template <class Work>
int with_counters(MPI_Win win, Work work) {
  RmaWindow* const found = find_window(win);
  return found == nullptr ? refuse_unserved(win) : serve(*found, work);
}

}  // namespace
}  // namespace sluice::mpi_rma

using namespace sluice::mpi_rma;

#pragma GCC visibility push(default)
extern "C" {

int SLUICE_Err_rma_notification() { return notification_error(); }

int MPI_Win_set_num_notify(MPI_Win win, MPI_Info, int num) {
  return with_counters(win,
                       [&](RmaWindow& window, Epochs::Lock& lock) { window.notifications.set(window, lock, num); });
}

int MPI_Win_get_num_notify(MPI_Win win, int rank, int* num) {
  return with_counters(win, [&](RmaWindow& window, Epochs::Lock&) {
    if (rank < 0 || rank >= window.size) throw Refused(MPI_ERR_RANK, "MPI_Win_get_num_notify: there is no such rank");
    *num = static_cast<int>(window.parts[static_cast<std::size_t>(rank)].counters.count);
  });
}

int MPI_Win_get_notify_value(MPI_Win win, int index, MPI_Count* value) {
  return with_counters(win, [&](RmaWindow& window, Epochs::Lock& lock) {
    *value = static_cast<MPI_Count>(window.notifications.value(window, index));
    const unsigned looks = window.notifications.looks();
    lock.unlock();
    Notifications::rest(*window.ranks, looks);
  });
}

int MPI_Win_reset_notify_value(MPI_Win win, int index, MPI_Count* value) {
  return with_counters(win, [&](RmaWindow& window, Epochs::Lock& lock) {
    *value = static_cast<MPI_Count>(window.notifications.reset(window, index));
    poll_if_due(window, lock);
  });
}

int SLUICE_Win_wait_notify_enqueue(MPI_Win win, int index, MPI_Count value, sluice_stream stream) {
  return with_counters(win, [&](RmaWindow& window, Epochs::Lock& lock) {
    if (value < 0) throw Refused(MPI_ERR_ARG, "a wait for a negative number of notifications");
    window.notifications.wait(window, lock, index, static_cast<std::uint64_t>(value), sluice::stream_of(stream));
  });
}

}  // extern "C"
#pragma GCC visibility pop
