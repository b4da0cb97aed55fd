/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-triggered MPI in the words of HPE Cray MPI, by libsluice_mpis. For C and C++. Link the library: CMake target
 * Sluice::mpis, or -lsluice_mpis before MPI.
 *
 * Messages are enqueued on a queue, started together in the order of its stream, and waited for by the stream. The host
 * does not wait. Each message is made anew: the n-th send to a rank, by communicator and tag, is received by its n-th
 * receive, in the order of MPIX_Enqueue_start. Sizes and datatypes may differ each time.
 *
 * - Every function returns MPI_SUCCESS or an error class of MPI, and throws nothing. A line on stderr says why. A call
 *   that is refused has changed nothing.
 * - Streams are a sluice_host_stream*, a cudaStream_t or a hipStream_t. Buffers may lie in the memory of a GPU if the
 *   stream is one of a GPU; each such message takes as many bytes of the host's memory while it is under way.
 * - MPI is initialised by MPI_Init or MPI_Init_thread, at any thread level.
 * - Communicators are MPI_COMM_WORLD, MPI_COMM_SELF, and intracommunicators that MPI_Comm_dup, MPI_Comm_dup_with_info,
 *   MPI_Comm_split, MPI_Comm_split_type, MPI_Comm_create, MPI_Comm_create_group, MPI_Intercomm_merge, MPI_Cart_create,
 *   MPI_Cart_sub, MPI_Graph_create, MPI_Dist_graph_create or MPI_Dist_graph_create_adjacent has made: the library
 *   stands before these, and agrees on a number for the communicator by a broadcast. Others are refused.
 * - Messages do not match those of MPI_Send and MPI_Recv. Each communicator, peer, tag and direction has 64 KiB of
 *   memory from its first use to MPI_Finalize.
 * - A queue is used by one thread at a time.
 */
#ifndef SLUICE_DIALECTS_CRAY_H
#define SLUICE_DIALECTS_CRAY_H

#include <sluice/c/stream.h>

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Passed by value.
typedef struct sluice_cray_queue* MPIX_Queue;

/// Makes a queue on a stream, which must outlive it. Not collective. `stream`: a sluice_host_stream*, a cudaStream_t or
/// a hipStream_t. May be called without `comm`, which then is MPI_COMM_WORLD.
/// @return also MPI_ERR_ARG, MPI_ERR_COMM; MPI_ERR_UNSUPPORTED_OPERATION for a stream that cannot be driven here
int MPIX_Create_queue(MPI_Comm comm, void* stream, MPIX_Queue* queue);
/// Blocks until all that was enqueued on the stream has run. Messages that were not started are dropped. Not inside of
/// the stream. @return also the first error that the stream has met, as MPIX_Enqueue_wait; the queue is freed then, too
int MPIX_Free_queue(MPIX_Queue queue);

/// Enqueues a message, which MPIX_Enqueue_start starts. Both may be called without `comm`, which then is that of the
/// queue; so it is for MPI_COMM_NULL. A count of 0, MPI_PROC_NULL, this rank itself and derived datatypes are legal.
/// The datatype may be freed afterwards, and the communicator after the start.
///
/// `request` may be given to MPI_Test, MPI_Wait and their kin on MPICH and its descendants; with another MPI it is
/// MPI_REQUEST_NULL. It need not: the library frees a request whose message is complete after 4096 later ones. NULL is
/// legal. Do not wait on the host for a message that is not started.
/// @return also MPI_ERR_RANK, MPI_ERR_TAG, MPI_ERR_COUNT, MPI_ERR_TYPE; MPI_ERR_UNSUPPORTED_OPERATION for
/// MPI_ANY_SOURCE
///   and MPI_ANY_TAG, and for a communicator without a number
int MPIX_Enqueue_send(const void* buffer, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                      MPIX_Queue queue, MPI_Request* request);
/// As MPIX_Enqueue_send. If a message is longer than the buffer, its end is dropped, and the stream's error is
/// MPI_ERR_TRUNCATE.
int MPIX_Enqueue_recv(void* buffer, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                      MPIX_Queue queue, MPI_Request* request);

/// When the stream comes here, all that was enqueued on this queue since the last start may move. Returns at once. Up
/// to 64 KiB with one peer, communicator and tag leave then, if the peer has enqueued a message with these, too. The
/// rest follows as the peer receives, whatever the stream and the host do: a thread of the library moves it.
int MPIX_Enqueue_start(MPIX_Queue queue);
/// Later work on the stream runs when all that was started on this queue since the last wait is complete, or has
/// failed: when the peer has died, after SLUICE_TIMEOUT, or when a callable of the program has stopped the host stream
/// of one of its ends. Then later messages with this peer, communicator and tag fail, too, at both ends. Returns at
/// once. The request of a message, or MPIX_Free_queue, tells the error.
int MPIX_Enqueue_wait(MPIX_Queue queue);

#ifdef __cplusplus
}

inline int MPIX_Create_queue(void* stream, MPIX_Queue* queue) {
  return MPIX_Create_queue(MPI_COMM_WORLD, stream, queue);
}
inline int MPIX_Enqueue_send(const void* buffer, int count, MPI_Datatype datatype, int dest, int tag, MPIX_Queue queue,
                             MPI_Request* request) {
  return MPIX_Enqueue_send(buffer, count, datatype, dest, tag, MPI_COMM_NULL, queue, request);
}
inline int MPIX_Enqueue_recv(void* buffer, int count, MPI_Datatype datatype, int source, int tag, MPIX_Queue queue,
                             MPI_Request* request) {
  return MPIX_Enqueue_recv(buffer, count, datatype, source, tag, MPI_COMM_NULL, queue, request);
}

#else

/* In C, macros choose by the number of arguments. */
#define SLUICE_CRAY_FOURTH(a, b, c, d, ...) d
#define SLUICE_CRAY_NINTH(a, b, c, d, e, f, g, h, i, ...) i

#define MPIX_Create_queue(...) \
  SLUICE_CRAY_FOURTH(__VA_ARGS__, SLUICE_CRAY_CREATE, SLUICE_CRAY_CREATE_WORLD, 0)(__VA_ARGS__)
#define SLUICE_CRAY_CREATE(comm, stream, queue) (MPIX_Create_queue)(comm, stream, queue)
#define SLUICE_CRAY_CREATE_WORLD(stream, queue) (MPIX_Create_queue)(MPI_COMM_WORLD, stream, queue)

#define MPIX_Enqueue_send(...) \
  SLUICE_CRAY_NINTH(__VA_ARGS__, SLUICE_CRAY_SEND, SLUICE_CRAY_SEND_OF_QUEUE, 0, 0, 0, 0, 0)(__VA_ARGS__)
#define SLUICE_CRAY_SEND(buffer, count, type, dest, tag, comm, queue, request) \
  (MPIX_Enqueue_send)(buffer, count, type, dest, tag, comm, queue, request)
#define SLUICE_CRAY_SEND_OF_QUEUE(buffer, count, type, dest, tag, queue, request) \
  (MPIX_Enqueue_send)(buffer, count, type, dest, tag, MPI_COMM_NULL, queue, request)

#define MPIX_Enqueue_recv(...) \
  SLUICE_CRAY_NINTH(__VA_ARGS__, SLUICE_CRAY_RECV, SLUICE_CRAY_RECV_OF_QUEUE, 0, 0, 0, 0, 0)(__VA_ARGS__)
#define SLUICE_CRAY_RECV(buffer, count, type, source, tag, comm, queue, request) \
  (MPIX_Enqueue_recv)(buffer, count, type, source, tag, comm, queue, request)
#define SLUICE_CRAY_RECV_OF_QUEUE(buffer, count, type, source, tag, queue, request) \
  (MPIX_Enqueue_recv)(buffer, count, type, source, tag, MPI_COMM_NULL, queue, request)

#endif

#endif
