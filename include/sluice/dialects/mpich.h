/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-triggered MPI in the words of MPICH 4.1 (MPIX_Stream), by libsluice_mpis. For C and C++, and for an MPI whose
 * mpi.h has none of it: where mpi.h declares these functions, this header declares nothing. Link the library: CMake
 * target Sluice::mpis, or -lsluice_mpis before MPI.
 *
 * A communicator has a stream. Messages and allreduces are enqueued on the communicator, and run in the order of that
 * stream. The host does not wait. The n-th send to a rank, by communicator and tag, is received by its n-th receive, in
 * the order of the calls.
 *
 * - Every function returns MPI_SUCCESS or an error class of MPI, and throws nothing. A line on stderr says why. A call
 *   that is refused has changed nothing.
 * - The info of a stream has "type" = "sluice_host_stream*", "cudaStream_t" or "hipStream_t", and "value" is the
 *   variable in hex. Buffers may lie in the memory of a GPU if the stream is one of a GPU; each such message takes as
 *   many bytes of the host's memory while it is under way.
 * - MPI is initialised by MPI_Init or MPI_Init_thread, at any thread level.
 * - Messages do not match those of MPI_Send and MPI_Recv. MPI_ANY_SOURCE and MPI_ANY_TAG are refused.
 * - A communicator of MPIX_Stream_comm_create may be duplicated by MPI_Comm_dup, not by MPI_Comm_idup. Each
 *   communicator, peer, tag and direction has 64 KiB of memory from its first use to MPI_Finalize.
 * - A stream is used by one thread at a time.
 */
#ifndef SLUICE_DIALECTS_MPICH_H
#define SLUICE_DIALECTS_MPICH_H

#include <sluice/c/stream.h>

#include <mpi.h>

#if !defined(MPICH_NUMVERSION) || MPICH_NUMVERSION < 40100000

#ifdef __cplusplus
extern "C" {
#endif

typedef int MPIX_Stream;
#define MPIX_STREAM_NULL ((MPIX_Stream)0x3c000000)

/* Streams */

/// Sets `key` to the `value_size` bytes at `value`, in hex. @return also what MPI_Info_set returns
int MPIX_Info_set_hex(MPI_Info info, const char* key, const void* value, int value_size);
/// Makes a handle of the stream that `info` names, which must outlive it. Not collective. Without "type", or without an
/// info, nothing can be enqueued on it. @return also MPI_ERR_ARG, MPI_ERR_INFO_VALUE; MPI_ERR_UNSUPPORTED_OPERATION for
///   another kind of stream, and for one that cannot be driven here
int MPIX_Stream_create(MPI_Info info, MPIX_Stream* stream);
/// Sets it to MPIX_STREAM_NULL. Communicators keep the stream. Blocks until all that was enqueued on the stream has
/// run.
/// @return also the first error that the stream has met
int MPIX_Stream_free(MPIX_Stream* stream);
/// Makes a communicator of the ranks of `comm`, with a stream of this rank's. Collective. Another rank may have
/// MPIX_STREAM_NULL. Freed by MPI_Comm_free.
int MPIX_Stream_comm_create(MPI_Comm comm, MPIX_Stream stream, MPI_Comm* newcomm);
/// MPIX_STREAM_NULL for a communicator without a stream, and for one whose stream's handle was freed. `idx` is 0.
int MPIX_Comm_get_stream(MPI_Comm comm, int idx, MPIX_Stream* stream);
/// Do nothing. When a stream comes to a send, up to 64 KiB with one peer, communicator and tag leave, if the peer has
/// enqueued a message with these, too. The rest follows as the peer receives, whatever the stream and the host do: a
/// thread of the library moves it. @return also MPI_ERR_ARG for a stream that does not exist; MPIX_STREAM_NULL is legal
int MPIX_Start_progress_thread(MPIX_Stream stream);
int MPIX_Stop_progress_thread(MPIX_Stream stream);
/// Moves the bytes of all messages that have begun, as far as they go without blocking. @return as the two above
int MPIX_Stream_progress(MPIX_Stream stream);

/* On the stream of a communicator. All return at once. A count of 0, MPI_PROC_NULL, this rank itself and derived
 * datatypes are legal; the datatype may be freed afterwards. @return also MPI_ERR_COMM for a communicator without a
 * stream, MPI_ERR_RANK, MPI_ERR_TAG, MPI_ERR_COUNT, MPI_ERR_TYPE; MPI_ERR_UNSUPPORTED_OPERATION for wildcards. */

/// Later work on the stream may write to the buffer.
int MPIX_Send_enqueue(const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);
/// Later work on the stream sees the message. The status is written when the stream comes there, and may be
/// MPI_STATUS_IGNORE; its MPI_ERROR is written if the message has failed. If a message is longer than the
/// buffer, its end is dropped, and the error is MPI_ERR_TRUNCATE.
int MPIX_Recv_enqueue(void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                      MPI_Status* status);
/// Begin when the stream comes there. The request is for MPIX_Wait_enqueue and MPIX_Waitall_enqueue alone.
int MPIX_Isend_enqueue(const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                       MPI_Request* request);
int MPIX_Irecv_enqueue(void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                       MPI_Request* request);
/// Later work on the stream of the request runs when its message is complete, or has failed: when the peer has died, or
/// after SLUICE_TIMEOUT, or a callable of the program has stopped the host stream of one of its ends. Then later
/// messages with this peer, communicator and tag fail, too, at both ends. The request is used up, and not set to null.
/// @return also MPI_ERR_REQUEST
int MPIX_Wait_enqueue(MPI_Request* request, MPI_Status* status);
/// As MPIX_Wait_enqueue, for requests of one stream. Sets all to MPI_REQUEST_NULL. Null requests are legal.
/// `array_of_statuses` may be MPI_STATUSES_IGNORE.
int MPIX_Waitall_enqueue(int count, MPI_Request array_of_requests[], MPI_Status* array_of_statuses);
/// Collective over `comm`, in the same order at all ranks, and with MPI's own collectives on it. The first call with
/// one count, datatype and operation blocks the host until rank 0 has called it, too. `sendbuf` may be MPI_IN_PLACE.
/// The datatype and the operation are predefined. Sums, products, minima, maxima and bitwise operations on integers and
/// floating-point numbers of 32 and 64 bits, and MPI_MINLOC and MPI_MAXLOC on C's pairs, run at any thread level,
/// others with MPI_THREAD_MULTIPLE. Each first call keeps two buffers of its size to MPI_Finalize, or, once the
/// communicator is freed and its allreduces are complete, to a later first call on another one. If an allreduce
/// fails, as a message does, later ones of its communicator, count, datatype and operation fail, too, at all ranks.
/// @return also MPI_ERR_OP; MPI_ERR_UNSUPPORTED_OPERATION for others
int MPIX_Allreduce_enqueue(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                           MPI_Comm comm);

#ifdef __cplusplus
}
#endif

#endif

#endif
