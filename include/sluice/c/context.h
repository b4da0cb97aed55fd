/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks, contexts and memory, as run.hpp, context.hpp and memory.hpp have them. Read first: sluice.h. */
#ifndef SLUICE_C_CONTEXT_H
#define SLUICE_C_CONTEXT_H

#include <sluice/c/stream.h>
#include <sluice/c/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Settings of a context. A setting that is not set has the value of its environment variable; without that, the
/// default.
typedef struct sluice_options {
  size_t size;                     ///< sizeof(sluice_options)
  sluice_timeout timeout;          ///< of a wait for a live peer: SLUICE_TIMEOUT; SLUICE_CONTEXT_TIMEOUT: not set
  sluice_timeout connect_timeout;  ///< of connecting, committing and closing: SLUICE_CONNECT_TIMEOUT
  const char* backends;            ///< names of the allowed backends, separated by commas; NULL: not set
} sluice_options;
#define SLUICE_OPTIONS \
  { sizeof(sluice_options), SLUICE_CONTEXT_TIMEOUT, SLUICE_CONTEXT_TIMEOUT, NULL }

/// The program of one rank. 0: success. Any other value: the rank has failed, as one whose body throws in C++; its
/// peers lose the channels that are open. If the value is the code of the last failed call of this thread, the line on
/// stderr is `sluice_last_error`. The context is valid until the body returns, and is not the body's to free.
typedef int (*sluice_body)(sluice_context* context, void* argument);

/// Runs `body` once for each rank of this process, as `sluice::run` does: under `sluice-run` with the ranks that it has
/// started, else as the only rank. Returns the exit code of the program, which is no sluice_code: 0 success; 1 a body
/// has failed, or a failure that no call has returned; 2 a bad setting or argument, or a second call. For 1 and 2, a
/// line on stderr has the reason. `argc` and `argv` are those of main, or 0 and NULL.
SLUICE_EXPORT int sluice_run(int argc, char** argv, sluice_body body, void* argument, const sluice_options* options);
/// Runs `body` in `ranks` threads, 1 or more, each of which is a rank. Returns when all have ended, as `sluice_run`. It
/// may be called any number of times.
SLUICE_EXPORT int sluice_run_threads(int ranks, sluice_body body, void* argument, const sluice_options* options);

/// The number of this rank; -1 if the handle is NULL. Any thread.
SLUICE_EXPORT int sluice_context_rank(const sluice_context* context);
/// The number of ranks; 0 if the handle is NULL. Any thread.
SLUICE_EXPORT int sluice_context_size(const sluice_context* context);
/// The number of this rank among those of its host; -1 if the handle is NULL. Any thread.
SLUICE_EXPORT int sluice_context_node_rank(const sluice_context* context);
/// How many ranks are on this host; 0 if the handle is NULL. Any thread.
SLUICE_EXPORT int sluice_context_node_size(const sluice_context* context);

/// Makes a context of some ranks: rank i is `ranks[i]`, of `count`. Only those ranks call it, all with the same list.
/// @return also SLUICE_BAD_ARGUMENT if a rank does not exist or is named twice, or this rank is not in the list
SLUICE_EXPORT sluice_code sluice_context_sub(sluice_context* context, const int* ranks, size_t count,
                                             sluice_context** sub);
/// Frees a context that `sluice_context_sub` made. Channels and other objects that were made from it keep it alive.
/// @return also SLUICE_MISUSE for the context of a body
SLUICE_EXPORT sluice_code sluice_context_free(sluice_context** context);

/// Blocks until everything that was enqueued on `stream` before has run, for at most `timeout`, which is not
/// SLUICE_CONTEXT_TIMEOUT; then as `sluice_context_check`.
/// @return also SLUICE_TIMEOUT: nothing has changed; what the callable has returned that stopped a host stream (see
///   `sluice_host_stream_synchronize`)
SLUICE_EXPORT sluice_code sluice_context_synchronize(sluice_context* context, sluice_stream stream,
                                                     sluice_timeout timeout);
/// Returns the oldest failure of a channel of this rank that neither this call nor `sluice_context_synchronize` has
/// returned yet; SLUICE_OK: there is none. Does not block.
SLUICE_EXPORT sluice_code sluice_context_check(sluice_context* context);
/// Fails every channel of this rank with SLUICE_ABORTED, here and soon at the peers, which ends every wait. `why` is
/// part of their error. A rank that gives up calls it before it frees its channels, so that these need not wait for
/// their peers.
SLUICE_EXPORT sluice_code sluice_context_abort(sluice_context* context, const char* why);

/// A kind of memory (types.hpp).
typedef enum sluice_space { SLUICE_SPACE_HOST = 0, SLUICE_SPACE_PINNED = 1, SLUICE_SPACE_DEVICE = 2 } sluice_space;

/// Memory that is pinned, zeroed and mappable by peers. `space`: a sluice_space. `device`: the GPU's number, for
/// SLUICE_SPACE_DEVICE; -1: the current one of this thread.
/// @return also SLUICE_BAD_ARGUMENT if `bytes` is 0 or there is no such device or space; SLUICE_OUT_OF_RESOURCES
SLUICE_EXPORT sluice_code sluice_context_allocate(sluice_context* context, size_t bytes, int space, int device,
                                                  sluice_memory** memory);
/// Pins `bytes` bytes of the program's own memory at `address`. They stay the program's, which frees them after every
/// channel and window on them was closed.
/// @return also SLUICE_BAD_ARGUMENT if `address` is NULL and `bytes` is not 0; SLUICE_OUT_OF_RESOURCES
SLUICE_EXPORT sluice_code sluice_context_region(sluice_context* context, void* address, size_t bytes,
                                                sluice_memory** memory);
/// The address of the first byte; NULL if the handle is NULL. Any thread.
SLUICE_EXPORT void* sluice_memory_data(const sluice_memory* memory);
/// 0 if the handle is NULL. Any thread.
SLUICE_EXPORT size_t sluice_memory_bytes(const sluice_memory* memory);
/// Frees the handle. The memory stays as long as a channel, a window or an access uses it.
SLUICE_EXPORT sluice_code sluice_memory_free(sluice_memory** memory);

#ifdef __cplusplus
}
#endif

#endif
