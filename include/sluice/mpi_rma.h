/* SPDX-License-Identifier: Apache-2.0 */
/* Notified one-sided communication of MPI, as proposed for MPI 5 (MPI Forum, issue 59), by libsluice_mpi_rma; and its
 * form on streams. For C and C++. Link the library: CMake target Sluice::mpi_rma, or -lsluice_mpi_rma before MPI. What
 * mpi.h has itself is not declared again; SLUICE_MPI_HAS_NOTIFY, defined before this header, says that it has all.
 *
 * A window has notification counters at each rank. An operation with a notification moves its data as the operation
 * without would, and then adds 1 to a counter of the target: a rank that sees the count sees the data. It tells nothing
 * of other operations.
 *
 * - Counters begin at 0. They are the counters of Sluice's windows (window.hpp), up to 4000 at a rank, of every window
 *   that Sluice serves, of all kinds. For a window that MPI serves itself, as with SLUICE_MPI_RMA=0, all calls below
 *   give MPI_ERR_RMA_FLAVOR.
 * - Operations with a notification are for passive target epochs, in which the target is locked; else they give
 *   MPI_ERR_RMA_SYNC. A counter that the target does not have gives MPI_ERR_RMA_NOTIFICATION. Neither moves anything.
 *   An operation without bytes notifies; one to MPI_PROC_NULL does nothing.
 * - The info key "mpi_assert_max_num_notify" of a call that makes a window promises that this rank has no more counters
 *   than its value, and gives it as many, up to 4000, at once. 0, the default, promises nothing. If the value of one
 *   rank is no such number, the call fails at all ranks with MPI_ERR_INFO_VALUE.
 * - Errors go to the error handler of the window, or of the communicator if there is no window yet.
 * - Any thread may call, as MPI's thread level permits. */
#ifndef SLUICE_MPI_RMA_H
#define SLUICE_MPI_RMA_H

#include <sluice/c/stream.h>

#include <mpi.h>

#if defined(MPI_ERR_RMA_NOTIFICATION) && !defined(SLUICE_MPI_HAS_NOTIFY)
#define SLUICE_MPI_HAS_NOTIFY
#endif

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SLUICE_MPI_HAS_NOTIFY

/// Error class of a notification counter that a rank does not have. No constant: MPI gives its value to each process,
/// once it is initialised.
#define MPI_ERR_RMA_NOTIFICATION (SLUICE_Err_rma_notification())
int SLUICE_Err_rma_notification(void);

/* Attributes of windows, for MPI_Win_get_attr. */

/// An int: counters that the window serves well, as many as MPI_WIN_NOTIFICATION_NUM_UB.
#define MPI_WIN_NOTIFICATION_NUM_SB (-590001)
/// An int: how many counters a rank may have, which is 4000, or the value of its "mpi_assert_max_num_notify" if that is
/// less.
#define MPI_WIN_NOTIFICATION_NUM_UB (-590002)
/// An MPI_Count: the largest count.
#define MPI_WIN_NOTIFICATION_VALUE_UB (-590003)

/// Gives this rank `num` counters, which may be another number at each rank, and sets all of its counters to 0. A rank
/// with more counters keeps their number. Collective over the window, outside of access epochs; no rank returns before
/// all have called it. `info` is not used.
/// @return
///   - MPI_ERR_ARG at all ranks if one of them gives a number below 0, above 4000, or above what it has promised.
///     MPI_ERR_RMA_SYNC at all if one of them has an epoch open. Then all counters are as before.
int MPI_Win_set_num_notify(MPI_Win win, MPI_Info info, int num);
/// How many counters `rank` has.
int MPI_Win_get_num_notify(MPI_Win win, int rank, int* num);
/// The count of a counter of this rank. A loop of these calls lets MPI make progress.
int MPI_Win_get_notify_value(MPI_Win win, int notification_idx, MPI_Count* value);
/// Returns the count of a counter of this rank and sets it to 0, in one step: no notification is lost.
int MPI_Win_reset_notify_value(MPI_Win win, int notification_idx, MPI_Count* value);

int MPI_Put_notify(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                   MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx,
                   MPI_Win win);
int MPI_Get_notify(void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                   MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx,
                   MPI_Win win);
int MPI_Accumulate_notify(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                          MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op,
                          int notification_idx, MPI_Win win);
int MPI_Get_accumulate_notify(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype,
                              void* result_addr, int result_count, MPI_Datatype result_datatype, int target_rank,
                              MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op,
                              int notification_idx, MPI_Win win);
int MPI_Rput_notify(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                    MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx,
                    MPI_Win win, MPI_Request* request);
int MPI_Rget_notify(void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                    MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, int notification_idx,
                    MPI_Win win, MPI_Request* request);
int MPI_Raccumulate_notify(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype, int target_rank,
                           MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op,
                           int notification_idx, MPI_Win win, MPI_Request* request);
int MPI_Rget_accumulate_notify(const void* origin_addr, int origin_count, MPI_Datatype origin_datatype,
                               void* result_addr, int result_count, MPI_Datatype result_datatype, int target_rank,
                               MPI_Aint target_disp, int target_count, MPI_Datatype target_datatype, MPI_Op op,
                               int notification_idx, MPI_Win win, MPI_Request* request);

#if MPI_VERSION >= 4
int MPI_Put_notify_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                     MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int notification_idx,
                     MPI_Win win);
int MPI_Get_notify_c(void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                     MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int notification_idx,
                     MPI_Win win);
int MPI_Accumulate_notify_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                            int target_rank, MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype,
                            MPI_Op op, int notification_idx, MPI_Win win);
int MPI_Get_accumulate_notify_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype,
                                int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                MPI_Datatype target_datatype, MPI_Op op, int notification_idx, MPI_Win win);
int MPI_Rput_notify_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                      MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int notification_idx,
                      MPI_Win win, MPI_Request* request);
int MPI_Rget_notify_c(void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype, int target_rank,
                      MPI_Aint target_disp, MPI_Count target_count, MPI_Datatype target_datatype, int notification_idx,
                      MPI_Win win, MPI_Request* request);
int MPI_Raccumulate_notify_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                             int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                             MPI_Datatype target_datatype, MPI_Op op, int notification_idx, MPI_Win win,
                             MPI_Request* request);
int MPI_Rget_accumulate_notify_c(const void* origin_addr, MPI_Count origin_count, MPI_Datatype origin_datatype,
                                 void* result_addr, MPI_Count result_count, MPI_Datatype result_datatype,
                                 int target_rank, MPI_Aint target_disp, MPI_Count target_count,
                                 MPI_Datatype target_datatype, MPI_Op op, int notification_idx, MPI_Win win,
                                 MPI_Request* request);
#endif

#endif

/// Later work on `stream` runs only once a counter of this rank has reached `value`, and then sees the data of the
/// operations that were counted. Returns at once; in program order, once it has, and MPI makes progress meanwhile.
///
/// `value` counts from the last reset before this call. A later reset does not change a wait that is enqueued. A
/// counter is used on streams of one kind. Waits must have ended before MPI_Win_set_num_notify and MPI_Win_free.
///
/// A host stream is one that this library has made: a program which links an archive of Sluice as well takes
/// `sluice_host_stream_create` from here.
///
/// If an operation to this rank has failed, or the rank that made it has died, the wait ends, and a host stream tells
/// so at its next synchronize.
/// @return also MPI_ERR_RMA_NOTIFICATION; MPI_ERR_ARG if `value` is negative; MPI_ERR_OTHER for a stream that cannot be
///   used, with a line on stderr if SLUICE_LOG includes errors
int SLUICE_Win_wait_notify_enqueue(MPI_Win win, int notification_idx, MPI_Count value, sluice_stream stream);

#ifdef __cplusplus
}
#endif

#endif
