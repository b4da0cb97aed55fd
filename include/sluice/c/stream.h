/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, as stream.hpp has them. Read first: sluice.h. */
#ifndef SLUICE_C_STREAM_H
#define SLUICE_C_STREAM_H

#include <sluice/c/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sluice_stream_kind {
  SLUICE_STREAM_PROGRAM_ORDER = 0,
  SLUICE_STREAM_HOST = 1,
  SLUICE_STREAM_CUDA = 2,
  SLUICE_STREAM_HIP = 3
} sluice_stream_kind;

/// A stream, which it does not own: the stream must outlive the channels and plans that are used on it. A plain value,
/// made by one of the four functions below; one of zeros is program order.
typedef struct sluice_stream {
  int kind;      ///< a sluice_stream_kind
  void* handle;  ///< a sluice_host_stream*, cudaStream_t or hipStream_t
} sluice_stream;

/// The calling thread is the stream, and runs each verb inside its call.
SLUICE_EXPORT sluice_stream sluice_stream_program_order(void);
/// With a NULL handle, verbs return SLUICE_MISUSE.
SLUICE_EXPORT sluice_stream sluice_stream_host(sluice_host_stream* stream);
/// A cudaStream_t. NULL is CUDA's legacy default stream.
SLUICE_EXPORT sluice_stream sluice_stream_cuda(void* stream);
/// A hipStream_t. NULL is HIP's default stream.
SLUICE_EXPORT sluice_stream sluice_stream_hip(void* stream);

typedef struct sluice_host_stream_options {
  size_t size;             ///< sizeof(sluice_host_stream_options)
  size_t capacity;         ///< the most items in the queue, 1 or more; rounded up to a power of two
  int cpu;                 ///< the core that the thread runs on; -1: any
  int stop_after_failure;  ///< if true, the first failed wait stops the stream too, until the next synchronize
  sluice_timeout timeout;  ///< of one wait on this stream; not SLUICE_CONTEXT_TIMEOUT
  const char* name;        ///< for messages and the timeline; NULL: none
} sluice_host_stream_options;
#define SLUICE_HOST_STREAM_OPTIONS \
  { sizeof(sluice_host_stream_options), 65536, -1, 0, SLUICE_FOREVER, NULL }

/// Makes a stream without a GPU: a FIFO queue, whose callables run one after another in a thread of its own.
/// @return also SLUICE_BAD_ARGUMENT for a bad option; SLUICE_OUT_OF_RESOURCES
SLUICE_EXPORT sluice_code sluice_host_stream_create(const sluice_host_stream_options* options,
                                                    sluice_host_stream** stream);
/// Enqueues `work(argument)` and returns. Any thread. If `work` returns another value than 0, the stream stops until
/// the next synchronize, as one whose callable throws in C++: verbs behind it move nothing and fail their channels with
/// SLUICE_ABORTED. The object at `argument` must live until `work` has run, or the stream was freed: a stream that has
/// stopped runs no callable.
SLUICE_EXPORT sluice_code sluice_host_stream_run(sluice_host_stream* stream, int (*work)(void* argument),
                                                 void* argument);
/// Blocks until everything that was enqueued before has run, for at most `timeout`, which is not
/// SLUICE_CONTEXT_TIMEOUT. Restarts a stream that has stopped.
/// @return also the failure with which a callable stopped the stream: of the call whose code it returned, if that was
///   the last call to fail in it, else SLUICE_ABORTED; else the oldest failure that a verb has met on this stream and
///   that was not returned yet. SLUICE_TIMEOUT: nothing has changed. SLUICE_MISUSE inside the stream
SLUICE_EXPORT sluice_code sluice_host_stream_synchronize(sluice_host_stream* stream, sluice_timeout timeout);
/// True if a wait on this stream has failed since the last synchronize; false if the handle is NULL. Any thread.
SLUICE_EXPORT int sluice_host_stream_failed(const sluice_host_stream* stream);
/// Blocks until all enqueued items have run. A wait that is not fulfilled ends, and its channel fails. Must not be
/// called inside the stream.
SLUICE_EXPORT sluice_code sluice_host_stream_free(sluice_host_stream** stream);

#ifdef __cplusplus
}
#endif

#endif
