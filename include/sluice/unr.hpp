// SPDX-License-Identifier: Apache-2.0
// Messages that a program sends in every step, made from the arguments of its MPI calls, and signals that count them.
#pragma once

#include <sluice/context.hpp>
#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/stream.hpp>
#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::unr {

class Core;
struct SignalCore;

/// Bytes of an element: `bytes` bytes from `offset` on.
struct Piece {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// Places of the bytes of an element, and its distance from the next one, as in a datatype of MPI. Pieces of one
/// receive must not overlap. `layout_of` of sluice/unr_mpi.hpp makes one from a datatype of MPI's.
struct SLUICE_EXPORT Layout {
  std::vector<Piece> pieces;
  std::size_t extent = 0;  ///< bytes from the beginning of an element to that of the next

  /// An element of `bytes` bytes without gaps.
  static Layout of(std::size_t bytes);
  /// `count` blocks of `bytes` bytes each, whose beginnings are `apart` bytes apart: as MPI_Type_vector.
  static Layout strided(std::size_t count, std::size_t bytes, std::size_t apart);
};

/// Counts events of a plan: messages that were sent, and messages that have arrived. It is triggered once all events of
/// its epoch have happened, each of its messages once. `reset` begins the next epoch. Copies are handles of the same
/// signal. An empty one, made without arguments, counts nothing: its calls throw Error{Code::misuse}.
///
/// A message that arrives for a later epoch is never counted in this one, since its put waits until `reset`: no sender
/// can stand in for another one.
///
/// @par Threads  One thread at a time for a plan and all its signals.
class SLUICE_EXPORT Signal {
 public:
  Signal() noexcept = default;

  /// Later work on `stream` runs only when the signal is triggered: it sees all bytes of messages that have arrived,
  /// and may change the memory of those that were sent. In program order the call blocks until then. A signal may be
  /// waited for again: on the same stream; on any, once a wait in program order has returned, or `wait_for` has
  /// returned true. If the plan was started on another stream of a GPU, the program must order the two.
  /// @throws Error{Code::misuse}: the plan is not committed; it has sends that this epoch's `start` has not begun, or
  ///   has begun on a stream of another kind; a wait is enqueued on another stream, and `wait_for` has not returned
  ///   true since. Else the failure of a channel: {Code::peer_lost} if a peer died, {Code::closed} if it has closed its
  ///   plan. Errors name the signal, its epoch, and both ranks.
  void wait(Stream stream = {});
  /// Blocks the host until the signal is triggered, for at most `timeout`; 0: looks once. False: it is not, and nothing
  /// has changed. For sends it waits until they have arrived. If a wait is enqueued, the stream must have completed it.
  /// @throws Error as `wait`; {Code::unsupported}: the plan is used on a GPU's stream, which must unpack a message.
  bool wait_for(Timeout timeout);
  /// Begins the next epoch: on `stream`, peers may put into the memory of messages that have arrived, and `start` may
  /// send again. Over a network that may go to a peer with the next put to it.
  /// @throws Error{Code::misuse}: an event is missing. The error names the peer of that event. Nothing has changed.
  void reset(Stream stream = {});

  /// 1 at first, and 1 more after each `reset`. 0 if the handle is empty.
  std::uint64_t epoch() const noexcept;
  /// Number of events that trigger it. 0 if the handle is empty.
  int events() const noexcept;

 private:
  friend class Core;
  friend class Plan;
  explicit Signal(std::shared_ptr<SignalCore> core) noexcept : core_(std::move(core)) {}
  std::shared_ptr<SignalCore> core_;
};

/// Settings of a Plan. Each rank may have its own.
struct Options {
  /// A message that arrives here is packed with others if it has at most this many bytes: messages of one peer and one
  /// signal travel in one put. Messages whose pieces do not adjoin here are packed whatever their size. 0: only those.
  /// docs/unr.md has what it saves, by the path.
  std::size_t pack_up_to = 1024;
  /// How long a put may wait until the receiver has reset its signal. For programs in which an earlier message implies
  /// that reset: a put that waits longer is a mistake. In program order, `start` waits, and throws. On a host stream
  /// the time begins when the stream reaches the put, however early that was enqueued; see "Mistakes that are found".
  /// Over a network, the reset may become known after a message that was sent behind it: allow for that. On the stream
  /// of a GPU nothing is limited. Nothing: no limit; with SLUICE_CHECK=1, in program order the connect
  /// timeout of the context.
  std::optional<Timeout> reset_within = {};
};

/// Messages that are sent again and again, recorded with the arguments of MPI's calls. Ranks are those of the context.
/// Rank -1 is MPI_PROC_NULL: the message does not exist. A message matches as in MPI, by its rank and tag, in the order
/// of recording; an exchange of all by the order of such calls. Both sides must have the same number of bytes.
/// Movable, not copyable. An empty handle throws Error{Code::misuse}.
///
/// @par Rounds
///   Each `start` sends every message once: start number n is round n. The memory of a send belongs to Sluice from
///   `start` until its signal is triggered, the memory of a receive from `reset` until its signal is triggered. A put
///   waits for the `reset` of the receiver, so nothing is ever overwritten, however early it starts.
///
/// @par Mistakes that are found
///   Always: events that do not add up to those of the signal; messages without a counterpart, or of another size; a
///   start before the signal of an earlier send was reset; a reset while events are missing; a wait for sends that were
///   not started. With Options::reset_within, in program order and on host streams: a put that the receiver's reset
///   does not precede. On a host stream that fails the channel at both ends: the put moves nothing, and
///   Context::synchronize throws Error{Code::misuse} at the sender. Otherwise, and on the stream of a GPU, such a put
///   waits.
///
/// @par Memory of GPUs
///   On streams of GPUs, memory may be of the host or of a GPU. In other order, memory of a GPU must not need packing,
///   on either side.
///
/// @par Threads  One thread at a time.
///
/// @par Source
///   Feng and others, "UNR: Unified Notifiable RMA Library for HPC", SC24: its plans, converters and signals.
///   docs/unr.md says what differs.
class SLUICE_EXPORT Plan {
 public:
  Plan() noexcept = default;
  /// `name`: 1 to 4000 characters, the same at all ranks that exchange messages, and of no other open plan here.
  /// @throws Error{Code::bad_argument}
  Plan(Context& context, std::string_view name, const Options& options = {});
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  /// Closes as `close` does, with the connect timeout; an error is logged. If an exception is unwinding the stack, the
  /// channels of the peers fail with {Code::peer_lost}.
  ~Plan();

  /// A signal of this plan. `events`: how many messages trigger it; 0: as many as are recorded with it.
  /// @throws Error{Code::misuse} after `commit`; {Code::bad_argument} for a negative number
  Signal signal(std::string_view name, int events = 0);

  // The calls of MPI. A signal of a send may be empty; that of a receive may not.
  // @throws Error{Code::bad_argument}: no such rank; bytes outside of the memory; a signal of another plan.
  //   {Code::misuse} after `commit`.

  /// Records a message of all bytes of `source`.
  void isend(const Slice& source, Rank to, Tag tag, const Signal& sent = {});
  void irecv(const Slice& target, Rank from, Tag tag, const Signal& arrived);
  /// `count` elements, the first at `offset` bytes.
  void isend(const Slice& source, std::size_t offset, std::size_t count, const Layout& type, Rank to, Tag tag,
             const Signal& sent = {});
  void irecv(const Slice& target, std::size_t offset, std::size_t count, const Layout& type, Rank from, Tag tag,
             const Signal& arrived);
  void sendrecv(const Slice& source, Rank to, Tag send_tag, const Slice& target, Rank from, Tag receive_tag,
                const Signal& sent, const Signal& arrived);
  /// All ranks of the context call it, in the same order as other such calls. Counts are of elements, displacements of
  /// extents, as in MPI_Alltoallv. A message of no bytes does not exist and is no event.
  void alltoallv(const Slice& source, std::span<const int> send_counts, std::span<const int> send_displacements,
                 const Layout& send_type, const Slice& target, std::span<const int> receive_counts,
                 std::span<const int> receive_displacements, const Layout& receive_type, const Signal& sent,
                 const Signal& arrived);

  /// Blocks the host until the ranks that exchange messages with this one have committed, and all is connected. Other
  /// ranks take no part. Then every signal is in epoch 1. `stream`: of the kind that the plan is used with.
  /// @throws Error{Code::mismatch}: messages do not match, and `what()` lists both ranks, the tag and the bytes;
  ///   {Code::misuse}: events do not add up; {Code::timeout}: a peer has not committed, or its plan has no message with
  ///   this rank; {Code::unsupported}; what opening a channel throws. Then only `close` may be called. A mismatch is an
  ///   error at both ranks.
  void commit(Stream stream = {}, std::optional<Timeout> timeout = kContextTimeout);

  /// Enqueues the next round: puts all messages. In program order it blocks while a receiver has not reset its signal.
  /// @throws Error{Code::misuse}: a send's signal was not reset, or a receiver's within Options::reset_within. Nothing
  ///   has changed. Else the first failure of a channel, or {Code::closed} if a peer has closed its plan; messages to
  ///   other peers are sent all the same.
  void start(Stream stream = {});

  /// Number of rounds that were started.
  std::uint64_t rounds() const;
  /// Number of puts that one round makes here, after `commit`.
  std::size_t puts() const;
  /// Text for people: for each put, its peer, messages, bytes and path.
  std::string describe() const;

  /// Blocks the host until no peer and no stream uses the memory, but for copies that a GPU's driver has taken before
  /// it refused others, or that pack a message whose put was then refused: synchronize the stream. Closing a closed
  /// plan does nothing.
  /// @throws Error{Code::timeout}: call it again; {Code::misuse} if the handle is empty.
  void close(std::optional<Timeout> timeout = kContextTimeout);

 private:
  Core& in() const;
  std::shared_ptr<Core> core_;
};

}  // namespace sluice::unr
