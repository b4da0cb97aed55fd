/* SPDX-License-Identifier: Apache-2.0 */
/* Windows and targets, as window.hpp has them, and the windows of collective_window.hpp. Read first: sluice.h. */
#ifndef SLUICE_C_WINDOW_H
#define SLUICE_C_WINDOW_H

#include <sluice/c/stream.h>
#include <sluice/c/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Bytes of a handle of a block of a window, which any means may carry to a peer.
#define SLUICE_WINDOW_HANDLE_BYTES 64

/// Makes a window of `bytes` bytes from `offset` of `memory`, which peers reach by this rank and `name`. They begin at
/// a multiple of 8 bytes. `name`: 1 to 4096 characters.
/// @return also SLUICE_BAD_ARGUMENT for other memory or another name; SLUICE_MISUSE if a window of this name is open
SLUICE_EXPORT sluice_code sluice_window_open(sluice_context* context, const char* name, const sluice_memory* memory,
                                             size_t offset, size_t bytes, sluice_window** window);
/// The most counters that a window may have.
#define SLUICE_MOST_COUNTERS 4000
/// The same with counters, which count accesses of peers; see "Counters" of Window in window.hpp. They begin at 0.
/// @return also SLUICE_BAD_ARGUMENT for too many counters
SLUICE_EXPORT sluice_code sluice_window_open_counted(sluice_context* context, const char* name,
                                                     const sluice_memory* memory, size_t offset, size_t bytes,
                                                     uint32_t counters, sluice_window** window);
/// Makes a window with counters, whose words are changed by atomics of targets alone: AtomicsOf::targets in window.hpp.
/// @return also SLUICE_BAD_ARGUMENT for too many counters
SLUICE_EXPORT sluice_code sluice_window_open_for_targets(sluice_context* context, const char* name,
                                                         const sluice_memory* memory, size_t offset, size_t bytes,
                                                         uint32_t counters, sluice_window** window);
/// Closes the window for all peers, and blocks the host until none of them touches its memory any more, which may be
/// freed then. Closing a closed window does nothing.
/// @return also SLUICE_TIMEOUT: the memory is still in use, and only this call may be made again
SLUICE_EXPORT sluice_code sluice_window_close(sluice_window* window, sluice_timeout timeout);
/// 0 if the handle is NULL.
SLUICE_EXPORT size_t sluice_window_bytes(const sluice_window* window);
/// How the atomics of a window are carried out; see AtomicsBy in window.hpp.
typedef enum sluice_atomics_by {
  SLUICE_ATOMICS_BY_PROCESSORS = 0,
  SLUICE_ATOMICS_BY_OWNER = 1,
  SLUICE_ATOMICS_BY_GPUS = 2,
  SLUICE_ATOMICS_BY_TURNS = 3
} sluice_atomics_by;

/// Sets `by` to how atomics in the memory that the window was made of are carried out. The answer stays the same.
SLUICE_EXPORT sluice_code sluice_window_atomics(const sluice_window* window, sluice_atomics_by* by);
/// Writes the handle of a block of the window to the SLUICE_WINDOW_HANDLE_BYTES bytes at `handle`.
/// @return also SLUICE_BAD_ARGUMENT if the block does not lie inside the window
SLUICE_EXPORT sluice_code sluice_window_handle(const sluice_window* window, size_t offset, size_t bytes, void* handle);
/// Makes `bytes` bytes from `offset` of `memory` part of the window: peers reach them at the offsets from `place` on,
/// which is told. No peer takes part. See "Attached memory" of Target in window.hpp.
/// @return also SLUICE_BAD_ARGUMENT for other memory than that of a window
SLUICE_EXPORT sluice_code sluice_window_attach(sluice_window* window, const sluice_memory* memory, size_t offset,
                                               size_t bytes, size_t* place);
/// The same at `place`, a multiple of 8: the address of the bytes, say.
/// @return also SLUICE_BAD_ARGUMENT if others have some of these offsets
SLUICE_EXPORT sluice_code sluice_window_attach_at(sluice_window* window, size_t place, const sluice_memory* memory,
                                                  size_t offset, size_t bytes);
/// Takes away what was attached at `place`, and blocks the host until no peer touches it any more.
/// @return also SLUICE_BAD_ARGUMENT if nothing was; SLUICE_TIMEOUT: it is still in use, and the call may be made again
SLUICE_EXPORT sluice_code sluice_window_detach(sluice_window* window, size_t place, sluice_timeout timeout);
/// One line for people. Valid until the next description of anything in this thread.
SLUICE_EXPORT sluice_code sluice_window_describe(const sluice_window* window, const char** text);
/// Later work on `stream` runs only when `counter` has reached `count`. In program order the call blocks until then.
/// @return also as `sluice_receiver_wait`; SLUICE_BAD_ARGUMENT if there is no such counter
SLUICE_EXPORT sluice_code sluice_window_wait(sluice_window* window, sluice_stream stream, uint32_t counter,
                                             uint64_t count);
/// Blocks the host until `counter` has reached `count`, for at most `timeout`, which is not SLUICE_CONTEXT_TIMEOUT; 0
/// only looks. Sets `reached` to 1 if it has, else to 0, and that is no failure.
/// @return also as `sluice_window_wait`
SLUICE_EXPORT sluice_code sluice_window_wait_for(sluice_window* window, uint32_t counter, uint64_t count,
                                                 sluice_timeout timeout, int* reached);
/// Sets `count` to the count now. @return also as `sluice_window_wait_for`
SLUICE_EXPORT sluice_code sluice_window_count(sluice_window* window, uint32_t counter, uint64_t* count);
/// Sets `count` to the count, which begins at 0 again: later waits count from here, those that are enqueued are not
/// changed. @return also as `sluice_window_wait_for`
SLUICE_EXPORT sluice_code sluice_window_fetch_and_zero(sluice_window* window, uint32_t counter, uint64_t* count);

/// Notice to the owner that an access by `sluice_target_put_tagged` or `sluice_target_get_tagged` has completed.
typedef struct sluice_notice {
  int source;     ///< rank of the target, in the context of the window
  uint32_t tag;   ///< as given there
  size_t offset;  ///< of the bytes, in the target's block
  size_t bytes;
} sluice_notice;

/// A notice of any rank; with any tag.
#define SLUICE_ANY_SOURCE (-1)
#define SLUICE_ANY_TAG UINT32_MAX

/// Blocks the host until a notice comes from `source` with `tag`, and takes it; for at most `timeout`, which is not
/// SLUICE_CONTEXT_TIMEOUT; 0 only looks. Sets `matched` to 1 and `notice`, which may be NULL, if one has come, else
/// `matched` to 0, and that is no failure.
/// @return also SLUICE_PEER_LOST, or the failure of a target, if it could have given the notice and gives none any
///   more: each is returned once; SLUICE_ABORTED
SLUICE_EXPORT sluice_code sluice_window_match(sluice_window* window, int source, uint32_t tag, sluice_timeout timeout,
                                              int* matched, sluice_notice* notice);
/// Takes `count` such notices, one after the other, and sets `matched` to how many came in time.
/// @return also as `sluice_window_match`
SLUICE_EXPORT sluice_code sluice_window_match_many(sluice_window* window, int source, uint32_t tag, size_t count,
                                                   sluice_timeout timeout, size_t* matched);
/// Closes the window, if it is open, for at most the connect timeout, and frees the handle.
SLUICE_EXPORT sluice_code sluice_window_free(sluice_window** window);

/// Operation of `sluice_target_accumulate` (ops.hpp).
typedef enum sluice_op {
  SLUICE_OP_SUM = 0,
  SLUICE_OP_MIN = 1,
  SLUICE_OP_MAX = 2,
  SLUICE_OP_REPLACE = 3,
  SLUICE_OP_BIT_AND = 4,
  SLUICE_OP_BIT_OR = 5,
  SLUICE_OP_BIT_XOR = 6
} sluice_op;

/// Type of the numbers that it changes.
typedef enum sluice_number {
  SLUICE_INT32 = 0,
  SLUICE_UINT32 = 1,
  SLUICE_INT64 = 2,
  SLUICE_UINT64 = 3,
  SLUICE_FLOAT32 = 4,
  SLUICE_FLOAT64 = 5
} sluice_number;

/// Opens the window that `peer` has made under this name, or will make. Returns at once.
/// @return also as `sluice_sender_open`
SLUICE_EXPORT sluice_code sluice_target_open(sluice_context* context, int peer, const char* name,
                                             sluice_target** target);
/// Opens the block of a window that the `bytes` bytes at `handle` name, as `sluice_window_handle` wrote them.
/// @return also SLUICE_BAD_ARGUMENT if they are no handle, were damaged, or are of another version or job
SLUICE_EXPORT sluice_code sluice_target_open_handle(sluice_context* context, const void* handle, size_t bytes,
                                                    sluice_target** target);
/// Bytes that the target reaches. Blocks the host until connected. @return also as `sluice_channel_wait_connected`
SLUICE_EXPORT sluice_code sluice_target_bytes(const sluice_target* target, size_t* bytes);
/// The bytes that the target reaches, as this process maps them (Target::mapped), to be freed as other memory. It has
/// no bytes if they are not mapped. Blocks the host until connected. @return also as `sluice_channel_wait_connected`
SLUICE_EXPORT sluice_code sluice_target_mapped(const sluice_target* target, sluice_memory** memory);

/* Accesses happen in the order of a stream: program order or a host stream. `place` counts bytes from the
 * beginning of the target; `memory` and `offset` name the bytes on this side. They return also what "Errors" of Target
 * in window.hpp says: SLUICE_BAD_ARGUMENT outside of the block, SLUICE_CLOSED once the owner has closed,
 * SLUICE_PEER_LOST after its death. */

/// Writes `bytes` bytes of `memory` to the target.
SLUICE_EXPORT sluice_code sluice_target_put(sluice_target* target, sluice_stream stream, const sluice_memory* memory,
                                            size_t offset, size_t bytes, size_t place);
/// Reads `bytes` bytes of the target into `memory`.
SLUICE_EXPORT sluice_code sluice_target_get(sluice_target* target, sluice_stream stream, const sluice_memory* memory,
                                            size_t offset, size_t bytes, size_t place);

/// A part of a transfer.
typedef struct sluice_extent {
  size_t here;   ///< first byte on this side, counted from `offset` of the memory
  size_t there;  ///< first byte in the target
  size_t bytes;
} sluice_extent;
/// Writes to the array `extents` `count` extents of `bytes` bytes each. Their beginnings are so many bytes apart, and
/// the first one is at 0 here and at `there`.
SLUICE_EXPORT sluice_code sluice_extents_strided(size_t count, size_t bytes, size_t here_apart, size_t there_apart,
                                                 size_t there, sluice_extent* extents);
/// Writes `count` extents of the `bytes` bytes from `offset` of `memory`, each as an access of its own. They must not
/// overlap at the target.
SLUICE_EXPORT sluice_code sluice_target_put_extents(sluice_target* target, sluice_stream stream,
                                                    const sluice_memory* memory, size_t offset, size_t bytes,
                                                    const sluice_extent* extents, size_t count);
/// Reads `count` extents, which must not overlap on this side.
SLUICE_EXPORT sluice_code sluice_target_get_extents(sluice_target* target, sluice_stream stream,
                                                    const sluice_memory* memory, size_t offset, size_t bytes,
                                                    const sluice_extent* extents, size_t count);

/// Like `sluice_target_put`, and then adds 1 to the owner's `counter`: once the owner sees the count, it sees the
/// bytes.
SLUICE_EXPORT sluice_code sluice_target_put_notify(sluice_target* target, sluice_stream stream,
                                                   const sluice_memory* memory, size_t offset, size_t bytes,
                                                   size_t place, uint32_t counter);
/// Like `sluice_target_get`, and then adds 1 to the owner's `counter`: the owner may then overwrite the bytes.
SLUICE_EXPORT sluice_code sluice_target_get_notify(sluice_target* target, sluice_stream stream,
                                                   const sluice_memory* memory, size_t offset, size_t bytes,
                                                   size_t place, uint32_t counter);
/// Adds 1 to the owner's `counter`.
SLUICE_EXPORT sluice_code sluice_target_notify(sluice_target* target, sluice_stream stream, uint32_t counter);
/// Like `sluice_target_put`, and then gives the owner a notice: once `sluice_window_match` has returned it, the owner
/// sees the bytes. Over a network the stream waits until the put has completed.
SLUICE_EXPORT sluice_code sluice_target_put_tagged(sluice_target* target, sluice_stream stream,
                                                   const sluice_memory* memory, size_t offset, size_t bytes,
                                                   size_t place, uint32_t tag);
/// Like `sluice_target_get`, and then gives the owner a notice.
SLUICE_EXPORT sluice_code sluice_target_get_tagged(sluice_target* target, sluice_stream stream,
                                                   const sluice_memory* memory, size_t offset, size_t bytes,
                                                   size_t place, uint32_t tag);
/// Changes the numbers of the target by the `bytes` bytes of numbers in `memory`, one by one. `op`: a sluice_op;
/// `number`: a sluice_number.
SLUICE_EXPORT sluice_code sluice_target_accumulate(sluice_target* target, sluice_stream stream, int op, int number,
                                                   const sluice_memory* memory, size_t offset, size_t bytes,
                                                   size_t place);
/// Like `sluice_target_accumulate`, and then adds 1 to the owner's `counter`.
SLUICE_EXPORT sluice_code sluice_target_accumulate_notify(sluice_target* target, sluice_stream stream, int op,
                                                          int number, const sluice_memory* memory, size_t offset,
                                                          size_t bytes, size_t place, uint32_t counter);
/// Adds `value` modulo 2^64 to the word of 8 bytes. The value before goes to the 8 bytes at `offset` of `memory`.
SLUICE_EXPORT sluice_code sluice_target_fetch_add(sluice_target* target, sluice_stream stream, size_t place,
                                                  uint64_t value, const sluice_memory* memory, size_t offset);
/// Stores `value`. Else as `sluice_target_fetch_add`.
SLUICE_EXPORT sluice_code sluice_target_swap(sluice_target* target, sluice_stream stream, size_t place, uint64_t value,
                                             const sluice_memory* memory, size_t offset);
/// Stores `desired` if the word is `expected`. Else as `sluice_target_fetch_add`.
SLUICE_EXPORT sluice_code sluice_target_compare_swap(sluice_target* target, sluice_stream stream, size_t place,
                                                     uint64_t expected, uint64_t desired, const sluice_memory* memory,
                                                     size_t offset);
/// Later work on `stream` runs only when every access before has completed.
SLUICE_EXPORT sluice_code sluice_target_flush(sluice_target* target, sluice_stream stream);
/// Later work on `stream` runs only when the memory on this side of every access before may be changed and read. At the
/// owner, puts may not have arrived.
SLUICE_EXPORT sluice_code sluice_target_flush_local(sluice_target* target, sluice_stream stream);
/// Blocks the host until every access that was enqueued has completed.
/// @return also SLUICE_TIMEOUT: nothing has changed
SLUICE_EXPORT sluice_code sluice_target_drain(sluice_target* target, sluice_timeout timeout);

/* Atomics in program order, for a target that is not used on a host stream. `old` gets the value before;
 * NULL: not wanted. */

/// @return also SLUICE_TIMEOUT: the word may yet change, and `sluice_target_drain` waits for that
SLUICE_EXPORT sluice_code sluice_target_fetch_add_now(sluice_target* target, size_t place, uint64_t value,
                                                      sluice_timeout timeout, uint64_t* old);
SLUICE_EXPORT sluice_code sluice_target_swap_now(sluice_target* target, size_t place, uint64_t value,
                                                 sluice_timeout timeout, uint64_t* old);
SLUICE_EXPORT sluice_code sluice_target_compare_swap_now(sluice_target* target, size_t place, uint64_t expected,
                                                         uint64_t desired, sluice_timeout timeout, uint64_t* old);
/// As `sluice_sender_free`.
/// @return also SLUICE_MISUSE for the target of a collective window
SLUICE_EXPORT sluice_code sluice_target_free(sluice_target** target);

/* A window on every rank of a context, which all ranks make together. The calls are those of CollectiveWindow
 * (collective_window.hpp), which has their errors, too. They block the host for at most `timeout`. */

/// Collective: every rank of `context` calls it with the same name. The window has `bytes` bytes from `offset` of
/// `memory`, which may differ from rank to rank; for 0 bytes `memory` may be NULL.
SLUICE_EXPORT sluice_code sluice_collective_window_open(sluice_context* context, const char* name,
                                                        const sluice_memory* memory, size_t offset, size_t bytes,
                                                        sluice_timeout timeout, sluice_collective_window** window);
/// Opens a collective window, of which the words of this rank's part are changed by atomics of targets alone:
/// AtomicsOf::targets in window.hpp.
SLUICE_EXPORT sluice_code sluice_collective_window_open_for_targets(sluice_context* context, const char* name,
                                                                    const sluice_memory* memory, size_t offset,
                                                                    size_t bytes, sluice_timeout timeout,
                                                                    sluice_collective_window** window);
/// Collective: completes all accesses, waits for all ranks, and closes the windows. The memory may be freed then.
/// Closing a closed window does nothing.
/// @return also SLUICE_MISUSE inside an epoch; SLUICE_TIMEOUT: call it again
SLUICE_EXPORT sluice_code sluice_collective_window_close(sluice_collective_window* window, sluice_timeout timeout);
/// -1 if the handle is NULL.
SLUICE_EXPORT int sluice_collective_window_rank(const sluice_collective_window* window);
/// 0 if the handle is NULL.
SLUICE_EXPORT int sluice_collective_window_size(const sluice_collective_window* window);
/// The window of `rank`, for accesses. The target is valid until the window is closed, and not to be freed.
SLUICE_EXPORT sluice_code sluice_collective_window_target(sluice_collective_window* window, int rank,
                                                          sluice_target** target);

/// Collective: returns when all accesses that any rank has enqueued before have completed.
SLUICE_EXPORT sluice_code sluice_collective_window_fence(sluice_collective_window* window, sluice_timeout timeout);
/// Opens this rank's memory to the `count` ranks at `origins`.
SLUICE_EXPORT sluice_code sluice_collective_window_post(sluice_collective_window* window, const int* origins,
                                                        size_t count, sluice_timeout timeout);
/// Returns when each of the `count` ranks at `targets` has posted to this rank.
SLUICE_EXPORT sluice_code sluice_collective_window_start(sluice_collective_window* window, const int* targets,
                                                         size_t count, sluice_timeout timeout);
/// Ends the epoch of `start`: completes the accesses to its targets, and tells them.
SLUICE_EXPORT sluice_code sluice_collective_window_complete(sluice_collective_window* window, sluice_timeout timeout);
/// Returns when all origins of `post` have called `complete`.
SLUICE_EXPORT sluice_code sluice_collective_window_wait(sluice_collective_window* window, sluice_timeout timeout);
/// Like `wait`, if all origins have called `complete`: then sets `completed` to 1, else to 0. Does not block.
SLUICE_EXPORT sluice_code sluice_collective_window_test(sluice_collective_window* window, int* completed);

/// Kind of a lock.
typedef enum sluice_lock { SLUICE_LOCK_SHARED = 0, SLUICE_LOCK_EXCLUSIVE = 1 } sluice_lock;

/// Locks the memory of `rank`. `kind`: a sluice_lock.
SLUICE_EXPORT sluice_code sluice_collective_window_lock(sluice_collective_window* window, int rank, int kind,
                                                        sluice_timeout timeout);
/// Completes the accesses to `rank` and gives its lock back.
SLUICE_EXPORT sluice_code sluice_collective_window_unlock(sluice_collective_window* window, int rank,
                                                          sluice_timeout timeout);
/// A shared lock of all ranks.
SLUICE_EXPORT sluice_code sluice_collective_window_lock_all(sluice_collective_window* window, sluice_timeout timeout);
/// Completes all accesses and gives the lock back.
SLUICE_EXPORT sluice_code sluice_collective_window_unlock_all(sluice_collective_window* window, sluice_timeout timeout);
/// Returns when all accesses of this rank to `rank` have completed.
SLUICE_EXPORT sluice_code sluice_collective_window_flush(sluice_collective_window* window, int rank,
                                                         sluice_timeout timeout);
/// Returns when all accesses of this rank have completed.
SLUICE_EXPORT sluice_code sluice_collective_window_flush_all(sluice_collective_window* window, sluice_timeout timeout);
/// Closes the window, if it is open, as `sluice_collective_window_close` for at most the connect timeout, and frees the
/// handle. A rank that has failed calls `sluice_context_abort` first.
SLUICE_EXPORT sluice_code sluice_collective_window_free(sluice_collective_window** window);

#ifdef __cplusplus
}
#endif

#endif
