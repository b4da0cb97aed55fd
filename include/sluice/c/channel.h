/* SPDX-License-Identifier: Apache-2.0 */
/* Channels, as channel.hpp and wait_any.hpp have them. Read first: sluice.h. */
#ifndef SLUICE_C_CHANNEL_H
#define SLUICE_C_CHANNEL_H

#include <sluice/c/stream.h>
#include <sluice/c/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Options of one end of a channel.
typedef struct sluice_channel_options {
  size_t size;                  ///< sizeof(sluice_channel_options)
  int depth;                    ///< number of slots of this end, 1 or more
  int lengths;                  ///< if true, `sluice_receiver_bytes` works; for receivers
  const char* name;             ///< for descriptions, logs and traces; NULL: none
  const char* contents;         ///< a description of what a slot holds, which the ends compare; NULL: none
  const char* scope;            ///< tags of a scope never match those of another (`Context::scope`); NULL: none
  const sluice_stream* stream;  ///< a stream of the kind that the channel will be used with; NULL: the first verb says
} sluice_channel_options;
#define SLUICE_CHANNEL_OPTIONS \
  { sizeof(sluice_channel_options), 1, 0, NULL, NULL, NULL, NULL }

/* What senders, receivers and targets have in common. */

/// The channel of an end, for the calls below; valid as long as the end, and not to be freed. NULL for NULL.
SLUICE_EXPORT sluice_channel* sluice_sender_channel(sluice_sender* sender);
SLUICE_EXPORT sluice_channel* sluice_receiver_channel(sluice_receiver* receiver);
SLUICE_EXPORT sluice_channel* sluice_target_channel(sluice_target* target);

/// Sets `connected` to 1 if the peer has opened its end and the two are connected, else to 0. Does not block.
/// @return also the failure of the channel, so a program can check here for one
SLUICE_EXPORT sluice_code sluice_channel_connected(sluice_channel* channel, int* connected);
/// Blocks the host until connected.
/// @return also SLUICE_TIMEOUT: nothing has changed; the failure of the channel
SLUICE_EXPORT sluice_code sluice_channel_wait_connected(sluice_channel* channel, sluice_timeout timeout);
/// Closes this end. Blocks the host until the memory of its slots may be freed. The peer need not close at the same
/// time. Closing a closed channel does nothing; one that has failed is closed like any other.
/// @return also SLUICE_TIMEOUT: the memory is still in use, and only this call may be made again
SLUICE_EXPORT sluice_code sluice_channel_close(sluice_channel* channel, sluice_timeout timeout);
/// -1 if the handle is NULL.
SLUICE_EXPORT int sluice_channel_peer(const sluice_channel* channel);
/// 0 if the handle is NULL.
SLUICE_EXPORT uint32_t sluice_channel_tag(const sluice_channel* channel);
/// Number of puts or waits that are enqueued; 0 if the handle is NULL.
SLUICE_EXPORT uint64_t sluice_channel_epoch(const sluice_channel* channel);
/// One line for people: backend, path of the bytes, what fires the puts, and why. The text is valid until the next
/// description of anything in this thread.
SLUICE_EXPORT sluice_code sluice_channel_describe(const sluice_channel* channel, const char** text);

/// Opens the sending end of a channel to `peer`. Returns at once. The source slots are the `bytes` bytes from `offset`
/// of `memory`, `depth` slots of equal size; for slots of 0 bytes `memory` may be NULL.
/// @return also SLUICE_BAD_ARGUMENT, SLUICE_UNSUPPORTED, SLUICE_MISUSE or SLUICE_OUT_OF_RESOURCES (`Context::sender`)
SLUICE_EXPORT sluice_code sluice_sender_open(sluice_context* context, int peer, uint32_t tag,
                                             const sluice_memory* memory, size_t offset, size_t bytes,
                                             const sluice_channel_options* options, sluice_sender** sender);
/// Later work on `stream` runs only when the source slot of the next put may be overwritten. `slot` gets its address;
/// NULL: not wanted.
/// @return also see "Errors of verbs" in channel.hpp
SLUICE_EXPORT sluice_code sluice_sender_acquire(sluice_sender* sender, sluice_stream stream, void** slot);
/// Enqueues the next epoch: a put of the whole slot. @return as `sluice_sender_acquire`
SLUICE_EXPORT sluice_code sluice_sender_put(sluice_sender* sender, sluice_stream stream);
/// A put of `bytes` bytes from `offset` in the slot, which land there in the target slot. 0 bytes only raise the
/// signal.
/// @return also SLUICE_BAD_ARGUMENT if they do not lie inside the slot; else as `sluice_sender_acquire`
SLUICE_EXPORT sluice_code sluice_sender_put_part(sluice_sender* sender, sluice_stream stream, size_t offset,
                                                 size_t bytes);
/// Sets `credited` to 1 if the next put would wait neither for the peer nor for credit, else to 0. Does not block.
/// @return also the failure of the channel
SLUICE_EXPORT sluice_code sluice_sender_credited(sluice_sender* sender, int* credited);
/// Blocks the host until the signal of every enqueued put has been raised.
/// @return also SLUICE_TIMEOUT: nothing has changed; the failure of the channel
SLUICE_EXPORT sluice_code sluice_sender_drain(sluice_sender* sender, sluice_timeout timeout);
/// Closes the channel, if it is open, for at most the connect timeout, and frees the handle. Memory of a region may be
/// in use after that time, so close it first.
SLUICE_EXPORT sluice_code sluice_sender_free(sluice_sender** sender);

/// Opens the receiving end of a channel from `peer`. Else as `sluice_sender_open`.
SLUICE_EXPORT sluice_code sluice_receiver_open(sluice_context* context, int peer, uint32_t tag,
                                               const sluice_memory* memory, size_t offset, size_t bytes,
                                               const sluice_channel_options* options, sluice_receiver** receiver);
/// Enqueues a wait for the next epoch. Later work on `stream` sees every byte of it; in program order that is so when
/// the call returns. `slot` gets the address of its slot; NULL: not wanted. The slot is the receiver's until its
/// release.
/// @return also SLUICE_CLOSED if the peer has closed its end and will never put it; else as `sluice_sender_acquire`
SLUICE_EXPORT sluice_code sluice_receiver_wait(sluice_receiver* receiver, sluice_stream stream, void** slot);
/// Enqueues the release of the oldest epoch that was waited for: the sender may overwrite its slot.
/// @return also SLUICE_MISUSE if every epoch that was waited for is released; else as `sluice_sender_acquire`
SLUICE_EXPORT sluice_code sluice_receiver_release(sluice_receiver* receiver, sluice_stream stream);
/// Blocks the host until the next epoch has landed, for at most `timeout`, which is not SLUICE_CONTEXT_TIMEOUT; 0 only
/// looks (`Receiver::test`). If it has, waits for it, sets `landed` to 1 and `slot`, which may be NULL, to its slot.
/// Otherwise sets `landed` to 0, also when the peer has closed; nothing else has changed, and that is no failure.
/// @return also the failure of the channel
SLUICE_EXPORT sluice_code sluice_receiver_wait_for(sluice_receiver* receiver, sluice_timeout timeout, int* landed,
                                                   void** slot);
/// Sets `closed` to 1 if the peer has closed its end and every epoch that it has put is waited for, else to 0. Does not
/// block.
/// @return also the failure of the channel, unless that is SLUICE_CLOSED
SLUICE_EXPORT sluice_code sluice_receiver_closed(const sluice_receiver* receiver, int* closed);
/// Number of bytes of the put that the last completed wait has seen; call it before the release.
/// @return also SLUICE_MISUSE without the option `lengths`, before a wait has completed, or after the release
SLUICE_EXPORT sluice_code sluice_receiver_bytes(const sluice_receiver* receiver, size_t* bytes);
/// As `sluice_sender_free`.
SLUICE_EXPORT sluice_code sluice_receiver_free(sluice_receiver** receiver);

/* The first of several receivers. */

/// Makes an object without receivers.
SLUICE_EXPORT sluice_code sluice_wait_any_create(sluice_wait_any** wait_any);
/// Adds a receiver. One that is closed or freed here leaves again. `index`, which may be NULL, gets how many were added
/// before it.
SLUICE_EXPORT sluice_code sluice_wait_any_add(sluice_wait_any* wait_any, sluice_receiver* receiver, size_t* index);
/// Blocks the host until one of the receivers has its next epoch, and waits for that epoch: `index` says which, `slot`
/// gets its slot, and `closed` 0. If `closed` is 1, the peer has closed, no epoch follows, and the receiver has left.
/// @return also SLUICE_TIMEOUT: nothing has changed; SLUICE_CLOSED: no receiver is left; the failure of a receiver,
///   which has left then
SLUICE_EXPORT sluice_code sluice_wait_any_wait(sluice_wait_any* wait_any, sluice_timeout timeout, size_t* index,
                                               void** slot, int* closed);
/// Enqueues a wait for one of the receivers, and returns at once: later work on `stream` runs when the wait has ended,
/// and finds what it has taken in `ticket`.
/// @return also, on a stream of a GPU, SLUICE_UNSUPPORTED if it captures a graph; SLUICE_OUT_OF_RESOURCES; the failure
///   that has ended such waits
SLUICE_EXPORT sluice_code sluice_wait_any_enqueue(sluice_wait_any* wait_any, sluice_stream stream,
                                                  sluice_ticket** ticket);
/// Like `sluice_wait_any_enqueue`, for all that have arrived when the first one has, one epoch of each at most.
SLUICE_EXPORT sluice_code sluice_wait_any_enqueue_some(sluice_wait_any* wait_any, sluice_stream stream,
                                                       sluice_ticket** ticket);
/// Enqueues the release of all that the wait of the ticket has taken. In place of it, callables may release.
/// @return also SLUICE_MISUSE if the ticket was released or is of another object; as `sluice_wait_any_enqueue`
SLUICE_EXPORT sluice_code sluice_wait_any_release(sluice_wait_any* wait_any, sluice_stream stream,
                                                  const sluice_ticket* ticket);
/// One of what a wait has taken, for the host and for kernels.
typedef struct sluice_arrival {
  uint64_t index;  ///< of the receiver
  void* slot;      ///< NULL: the peer has closed, and no epoch follows
  uint64_t bytes;
  uint64_t count;  ///< 0
} sluice_arrival;
/// Number of arrivals of a wait that has ended; 0: no receiver was left. Any thread, also a callable behind the wait.
/// @return also SLUICE_MISUSE if the wait has not ended; the failure that has ended it
SLUICE_EXPORT sluice_code sluice_ticket_arrivals(const sluice_ticket* ticket, size_t* arrivals);
/// Arrival `which`, from 0 on.
/// @return also SLUICE_BAD_ARGUMENT if there are not so many; as `sluice_ticket_arrivals`
SLUICE_EXPORT sluice_code sluice_ticket_arrival(const sluice_ticket* ticket, size_t which, sluice_arrival* arrival);
/// For kernels behind a wait on a stream of a GPU: they find the number of arrivals at `*arrivals`, 0 also if the wait
/// has failed, and the arrivals from `*first` on. For kernels that are enqueued before the ticket is freed, and run
/// before `sluice_wait_any_free`.
/// @return also SLUICE_MISUSE if the wait is not on a stream of a GPU
SLUICE_EXPORT sluice_code sluice_ticket_on_device(const sluice_ticket* ticket, const uint64_t** arrivals,
                                                  const sluice_arrival** first);
SLUICE_EXPORT sluice_code sluice_ticket_free(sluice_ticket** ticket);
/// Number of receivers that have not left; 0 if the handle is NULL.
SLUICE_EXPORT size_t sluice_wait_any_left(const sluice_wait_any* wait_any);
SLUICE_EXPORT sluice_code sluice_wait_any_free(sluice_wait_any** wait_any);

#ifdef __cplusplus
}
#endif

#endif
