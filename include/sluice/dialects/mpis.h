/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-triggered MPI in the words of MPI Advance (github.com/mpi-advance/stream-triggering, 0.7), by libsluice_mpis.
 * For C and C++. Link the library: CMake target Sluice::mpis, or -lsluice_mpis before MPI. A program that includes
 * "stream-triggering.h" is compiled with -I.../include/sluice/dialects/mpi_advance and not changed.
 *
 * A request is made once, matched once with the request of its peer, and then started and waited for again and again,
 * in the order of a stream. The host does not wait for any of these starts and waits.
 *
 * - Every function returns MPIS_SUCCESS, one of the codes below, or an error class of MPI, and throws nothing. A line
 *   on stderr says why. A call that is refused has changed nothing.
 * - MPI is initialised by MPI_Init or MPI_Init_thread, at any thread level: this library stands before both, and makes
 *   its context of all ranks there. MPI is called from threads of the program alone, inside of these functions, but for
 *   MPI_Reduce_local, which the thread of a host stream calls (see MPIS_Allreduce_init).
 * - Communicators are intracommunicators of processes that started together. Ranks are those of the communicator.
 * - A request and a queue are used by one thread at a time.
 * - Waits for a peer end when that peer dies, and after SLUICE_CONNECT_TIMEOUT (a match) or SLUICE_TIMEOUT (a stream).
 * - A request that has failed stays failed, and the peer's fails with it: its stream's wait has lasted too long, or a
 *   callable of the program has stopped the host stream in front of its start or its wait. It can only be freed.
 */
#ifndef SLUICE_DIALECTS_MPIS_H
#define SLUICE_DIALECTS_MPIS_H

#include <sluice/c/stream.h>

#include <mpi.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uintptr_t MPIS_Queue;
typedef struct MPIS_Request_struct* MPIS_Request;

enum {
  MPIS_SUCCESS = 0,
  MPIS_NOT_READY = -1,              ///< a timeout; the call may be made again
  MPIS_INVALID_REQUEST_STATE = -2,  ///< the request is not matched, already matched, or started and not waited for
  MPIS_UNSUPPORTED_BEHAVIOR = -3    ///< wildcards, and what a function below excludes
};

extern const uintptr_t MPIS_QUEUE_NULL;
extern struct MPIS_Request_struct* const MPIS_REQUEST_NULL;

/// All three take their order from a stream. THREAD is meant for streams of the host, the others for those of a GPU;
/// CXI is GPU_MEM_OPS by another name, since Sluice chooses by itself what moves the bytes.
enum MPIS_Queue_type { THREAD = 0, GPU_MEM_OPS = 3, CXI = 4 };
typedef enum MPIS_Queue_type MPIS_Queue_type;
typedef enum MPIS_Queue_type MPS_Queue_type;

/// Logs which library this is, if SLUICE_LOG includes the level info.
void MPIS_Hello_world(void);

/* Queues. Any number may be alive. */

/// Makes a queue on a stream. `stream` is the address of a variable with a cudaStream_t, a hipStream_t or a
/// sluice_host_stream* of this library; it is read at each call. THREAD takes NULL too, and then has a host stream of
/// its own. The stream and the variable must outlive the queue. The variable must not change between a start and its
/// wait, unless the program orders the two streams. If it names a new stream after a stream that was destroyed, the
/// destroyed one must have run all that it was given. Not collective.
/// @return also MPI_ERR_ARG, MPI_ERR_NO_MEM; MPIS_UNSUPPORTED_BEHAVIOR if this build or machine cannot drive the stream
int MPIS_Queue_init(MPIS_Queue* queue, MPIS_Queue_type type, void* stream);
/// Waits as MPIS_Queue_wait does, and sets the queue to MPIS_QUEUE_NULL, also if that returns an error.
int MPIS_Queue_free(MPIS_Queue* queue);
/// Blocks until all that was enqueued has run, also the program's own work on the stream. Returns the first error that
/// the stream has met since the last call. Not inside of the stream.
int MPIS_Queue_wait(MPIS_Queue queue);

/* Requests. The info is not used. MPI_INFO_NULL is allowed. */

/// A count of 0, MPI_PROC_NULL, this rank itself and derived datatypes are legal; on a GPU's stream the elements must
/// follow each other without gaps. The datatype and the communicator may be freed afterwards, the latter after the
/// match.
/// @return MPI_ERR_COMM, MPI_ERR_RANK, MPI_ERR_TAG, MPI_ERR_COUNT, MPI_ERR_TYPE, MPI_ERR_ARG;
///   MPIS_UNSUPPORTED_BEHAVIOR for MPI_ANY_SOURCE and MPI_ANY_TAG
int MPIS_Send_init(const void* buffer, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                   MPI_Info info, MPIS_Request* request);
/// As MPIS_Send_init. The receiver's start is awaited all the same.
int MPIS_Rsend_init(const void* buffer, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                    MPI_Info info, MPIS_Request* request);
/// As MPIS_Send_init. The message may be shorter than the buffer.
int MPIS_Recv_init(void* buffer, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                   MPI_Info info, MPIS_Request* request);
/// Collective over `comm`, in the same order at all ranks.
int MPIS_Barrier_init(MPI_Comm comm, MPI_Info info, MPIS_Request* request);
/// Collective over `comm`, in the same order at all ranks. The elements follow each other without gaps. `send_buffer`
/// may be MPI_IN_PLACE. Sums, products, minima, maxima and bitwise operations on integers and floating-point numbers of
/// 32 and 64 bits run on every stream; MPI_MINLOC and MPI_MAXLOC on C's pairs on host streams alone; other predefined
/// operations and the program's own on host streams alone, and with MPI_THREAD_MULTIPLE. Then the datatype and the
/// operation must stay until the request is freed.
/// @return also MPI_ERR_OP; MPIS_UNSUPPORTED_BEHAVIOR for pairs in a derived datatype
int MPIS_Allreduce_init(const void* send_buffer, void* receive_buffer, int count, MPI_Datatype datatype, MPI_Op op,
                        MPI_Comm comm, MPI_Info info, MPIS_Request* request);
/// Sets the request to MPIS_REQUEST_NULL. If it is started, it is freed when the stream has completed it, on a GPU's
/// stream in the MPIS_Queue_wait behind it. Else blocks until the peer no longer uses the buffer. A request that is
/// null is legal.
int MPIS_Request_free(MPIS_Request* request);
int MPIS_Request_freeall(int count, MPIS_Request requests[]);

/* Matching. The n-th request to a peer, with one tag and communicator, is matched with the peer's n-th, by the order of
 * these calls. It sends messages of MPI's with this tag on the communicator, as MPI Advance does: a receive of the
 * program with wildcards must not be under way there. Null requests are legal and do nothing, but for MPIS_Is_matched,
 * which refuses them. A match needs a queue, whose kind of stream the request is then started on: of MPIS_Queue_match
 * the one that is named, else the youngest. On a GPU's stream, a match takes its place behind the work that is there,
 * so it is complete at the peer once that work is. MPIS_Is_matched, MPIS_Wait and MPIS_Waitall need no queue. */

/// Blocks until the peer has matched, too. Peers may match different requests in different orders: while it blocks, a
/// request that is not matched yet takes part if it is the only one with its peer, tag and communicator. The status
/// gets source, tag and count of the message; of a send, those of its peer.
/// @return MPIS_NOT_READY after SLUICE_CONNECT_TIMEOUT: call it again, with the same requests. MPI_ERR_TRUNCATE at both
///   ends if the message is longer than the buffer. MPIS_UNSUPPORTED_BEHAVIOR at both ends if one cannot serve the
///   datatype. MPI_ERR_OTHER if the peer has died. After an error the request can only be freed.
int MPIS_Match(MPIS_Request* request, MPI_Status* status);
int MPIS_Matchall(int count, MPIS_Request requests[], MPI_Status statuses[]);
/// Begins a match, and returns at once. MPIS_Wait or MPIS_Waitall of `match` completes it, or the first start.
int MPIS_Imatch(MPIS_Request* request, MPIS_Request* match);
/// Sets `flag` to 1 if the request is matched, else to 0. Does not block.
int MPIS_Is_matched(MPIS_Request* request, int* flag);
int MPIS_Queue_match(MPIS_Queue queue, MPIS_Request* request, MPI_Status* status);
/// Completes a match, as MPIS_Match, and frees and nulls `match`.
/// @return MPIS_INVALID_REQUEST_STATE for a request that is not of a match
int MPIS_Wait(MPIS_Request* match, MPI_Status* status);
int MPIS_Waitall(int count, MPIS_Request matches[], MPI_Status statuses[]);

/* On the stream. Null requests do nothing. */

/// When the stream comes here, a send may read its buffer, and a receive may be given its bytes. Returns at once. A
/// start on another queue than the one before is ordered behind its completion by the program, for example by
/// MPIS_Queue_wait. If a GPU's stream cannot start a request, MPIS_Queue_wait returns the error.
/// @return MPIS_INVALID_REQUEST_STATE, also for a second start before MPIS_Enqueue_waitall; MPIS_UNSUPPORTED_BEHAVIOR
///   for a queue of another kind than that of the match; MPI_ERR_OTHER while the GPU's stream captures a graph
int MPIS_Enqueue_start(MPIS_Queue queue, MPIS_Request* request);
/// Starts all, or none if it returns an error of a state. Receives are started before the others.
int MPIS_Enqueue_startall(MPIS_Queue queue, int count, MPIS_Request requests[]);
/// Later work on the stream runs when all that was started on this queue since the last call is complete. Returns at
/// once.
///
/// If the stream comes to the start of a send before the receive has started, a thread of the library puts the message
/// when the receive starts, also before this call. That thread also advances started collectives. For a GPU's stream it
/// uses a stream of the library's own, which never waits for a peer: the thread gives it a put, a copy or a kernel once
/// what that needs has arrived. A GPU that runs nothing of that stream holds the operations up until this wait.
///
/// On a GPU's stream, the messages that have not left at this call leave when the stream comes here: first those whose
/// receive has started, then the others in the order of the starts. A late receiver of one of these holds back
/// those behind it.
/// @return MPI_ERR_OTHER while the GPU's stream captures a graph: nothing has changed
int MPIS_Enqueue_waitall(MPIS_Queue queue);

/* Memory that peers reach without a copy. */

/// `info` has a key "mpi_memory_alloc_kinds" with "system", "cuda:device", "rocm:device", "rocm:device:fine" or
/// "rocm:device:coarse". Without a GPU, all are memory of the host. The memory is zeroed.
/// @return MPIS_UNSUPPORTED_BEHAVIOR for other kinds, or none; MPI_ERR_NO_MEM, MPI_ERR_ARG
int MPIS_Alloc_mem(MPI_Aint bytes, MPI_Info info, void** memory);
/// Requests that use the memory keep it. NULL is legal. @return MPI_ERR_ARG for other memory
int MPIS_Free_mem(void* memory);

#ifdef __cplusplus
}
#endif

#endif
