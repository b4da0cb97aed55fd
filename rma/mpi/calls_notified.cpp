// SPDX-License-Identifier: Apache-2.0
// MPI's calls for notifications, and ours for streams.
#include <sluice/mpi_rma.h>
#include <sluice/c/stream.hpp>

#include "rma/mpi/accesses.hpp"
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
  return with_counters(win, [&](RmaWindow& window, Epochs::Lock&) {
    *value = static_cast<MPI_Count>(window.notifications.value(window, index));
  });
}

int MPI_Win_reset_notify_value(MPI_Win win, int index, MPI_Count* value) {
  return with_counters(win, [&](RmaWindow& window, Epochs::Lock&) {
    *value = static_cast<MPI_Count>(window.notifications.reset(window, index));
  });
}

int SLUICE_Win_wait_notify_enqueue(MPI_Win win, int index, MPI_Count value, sluice_stream stream) {
  return with_counters(win, [&](RmaWindow& window, Epochs::Lock& lock) {
    if (value < 0) throw Refused(MPI_ERR_ARG, "a wait for a negative number of notifications");
    window.notifications.wait(window, lock, index, static_cast<std::uint64_t>(value), sluice::stream_of(stream));
  });
}

// MPI refuses invalid arguments, and calls the error handler.

int MPI_Put_notify(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                   MPI_Datatype there, int index, MPI_Win win) {
  if (const auto done = put({win, nullptr, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return PMPI_Put(origin, count, type, rank, at, there_count, there, win);
}

int MPI_Get_notify(void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                   MPI_Datatype there, int index, MPI_Win win) {
  if (const auto done = get({win, nullptr, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return PMPI_Get(origin, count, type, rank, at, there_count, there, win);
}

int MPI_Accumulate_notify(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                          MPI_Datatype there, MPI_Op op, int index, MPI_Win win) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, nullptr, index}, here(origin, count, type), nullptr, to, op)) return *done;
  return PMPI_Accumulate(origin, count, type, rank, at, there_count, there, op, win);
}

int MPI_Get_accumulate_notify(const void* origin, int count, MPI_Datatype type, void* result, int result_count,
                              MPI_Datatype result_type, int rank, MPI_Aint at, int there_count, MPI_Datatype there,
                              MPI_Op op, int index, MPI_Win win) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, nullptr, index}, here(origin, count, type), &before, to, op)) return *done;
  return PMPI_Get_accumulate(origin, count, type, result, result_count, result_type, rank, at, there_count, there, op,
                             win);
}

int MPI_Rput_notify(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                    MPI_Datatype there, int index, MPI_Win win, MPI_Request* request) {
  if (const auto done = put({win, request, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return PMPI_Rput(origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Rget_notify(void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                    MPI_Datatype there, int index, MPI_Win win, MPI_Request* request) {
  if (const auto done = get({win, request, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return PMPI_Rget(origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Raccumulate_notify(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                           MPI_Datatype there, MPI_Op op, int index, MPI_Win win, MPI_Request* request) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request, index}, here(origin, count, type), nullptr, to, op)) return *done;
  return PMPI_Raccumulate(origin, count, type, rank, at, there_count, there, op, win, request);
}

int MPI_Rget_accumulate_notify(const void* origin, int count, MPI_Datatype type, void* result, int result_count,
                               MPI_Datatype result_type, int rank, MPI_Aint at, int there_count, MPI_Datatype there,
                               MPI_Op op, int index, MPI_Win win, MPI_Request* request) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request, index}, here(origin, count, type), &before, to, op)) return *done;
  return PMPI_Rget_accumulate(origin, count, type, result, result_count, result_type, rank, at, there_count, there, op,
                              win, request);
}

#if MPI_VERSION >= 4
int MPI_Put_notify_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at,
                     MPI_Count there_count, MPI_Datatype there, int index, MPI_Win win) {
  if (const auto done = put({win, nullptr, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return PMPI_Put_c(origin, count, type, rank, at, there_count, there, win);
}

int MPI_Get_notify_c(void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
                     MPI_Datatype there, int index, MPI_Win win) {
  if (const auto done = get({win, nullptr, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return PMPI_Get_c(origin, count, type, rank, at, there_count, there, win);
}

int MPI_Accumulate_notify_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at,
                            MPI_Count there_count, MPI_Datatype there, MPI_Op op, int index, MPI_Win win) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, nullptr, index}, here(origin, count, type), nullptr, to, op)) return *done;
  return PMPI_Accumulate_c(origin, count, type, rank, at, there_count, there, op, win);
}

int MPI_Get_accumulate_notify_c(const void* origin, MPI_Count count, MPI_Datatype type, void* result,
                                MPI_Count result_count, MPI_Datatype result_type, int rank, MPI_Aint at,
                                MPI_Count there_count, MPI_Datatype there, MPI_Op op, int index, MPI_Win win) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, nullptr, index}, here(origin, count, type), &before, to, op)) return *done;
  return PMPI_Get_accumulate_c(origin, count, type, result, result_count, result_type, rank, at, there_count, there, op,
                               win);
}

int MPI_Rput_notify_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at,
                      MPI_Count there_count, MPI_Datatype there, int index, MPI_Win win, MPI_Request* request) {
  if (const auto done = put({win, request, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return PMPI_Rput_c(origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Rget_notify_c(void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
                      MPI_Datatype there, int index, MPI_Win win, MPI_Request* request) {
  if (const auto done = get({win, request, index}, here(origin, count, type), {rank, at, there_count, there}))
    return *done;
  return PMPI_Rget_c(origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Raccumulate_notify_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at,
                             MPI_Count there_count, MPI_Datatype there, MPI_Op op, int index, MPI_Win win,
                             MPI_Request* request) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request, index}, here(origin, count, type), nullptr, to, op)) return *done;
  return PMPI_Raccumulate_c(origin, count, type, rank, at, there_count, there, op, win, request);
}

int MPI_Rget_accumulate_notify_c(const void* origin, MPI_Count count, MPI_Datatype type, void* result,
                                 MPI_Count result_count, MPI_Datatype result_type, int rank, MPI_Aint at,
                                 MPI_Count there_count, MPI_Datatype there, MPI_Op op, int index, MPI_Win win,
                                 MPI_Request* request) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request, index}, here(origin, count, type), &before, to, op)) return *done;
  return PMPI_Rget_accumulate_c(origin, count, type, result, result_count, result_type, rank, at, there_count, there,
                                op, win, request);
}

#endif

}  // extern "C"
#pragma GCC visibility pop
