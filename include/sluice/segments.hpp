// SPDX-License-Identifier: Apache-2.0
// One-way channels over a large buffer, of which any part is put, waited for and released.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/stream.hpp>
#include <sluice/types.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace sluice {

class Context;

namespace segments {
class SenderEnd;
class ReceiverEnd;
}  // namespace segments

/// The sending end of a segmented channel: a source buffer, of which the sender puts any range to the same offsets of
/// the receiver's buffer, which has the same size. Offsets and counts are bytes. Movable, not copyable. A handle that
/// is made without arguments, or was moved from, is empty: `bytes` is 0, `peer` is -1, `tag` is 0, and all other calls
/// throw Error{Code::misuse}.
///
/// @par Bytes
///   Each byte of the receiver's buffer is *writable* or *written*. At first all are writable. A put makes the bytes of
///   its range written, and may begin only when all of them are writable. They have *arrived* when the receiver sees
///   what was put. A release makes bytes writable again, and is allowed only for bytes that have arrived. So each byte
///   is put, arrives and is released in turn, whatever the ranges of puts, waits and releases are. They may overlap and
///   adjoin in any way: a wait for a range that three puts have written ends when the last of them has arrived, and one
///   release may give back what they have written.
///
/// @par Many at a time
///   Up to 16 puts are under way that the receiver has not taken note of, which it does in `wait`, `test` and the like,
///   and in a WaitAny, for any range. A further put waits for that. Releases are never lost and never block: those that
///   the sender has not taken note of are kept by the receiver, merged. The sender takes note of them in any call.
///   Memory of either end grows with the number of intervals of written bytes, which is at most the number of puts that
///   are not released plus the number of releases of parts, and half the number of bytes.
///
/// @par Streams
///   Calls with a Stream happen in its order: the stream goes on once the put has begun, or the wait has ended. On a
///   HostStream and on a GPU's stream the call returns at once. A thread of the channel does the work, one for each
///   such stream: the stream raises a word when the call has its turn, and waits for one word. In program order they
///   are the calls without a stream. Streams of all kinds may be used with one end. A stream that captures a graph is
///   refused with {Code::unsupported}.
///
/// @par Errors
///   {Code::bad_argument}: the range does not lie inside the buffer; {Code::misuse}: the order of calls forbids it, see
///   each call; the end is closed; the handle is empty; in a child of fork; {Code::timeout}. Nothing has changed. A
///   mistake that is found only in the order of a stream fails the channel. A channel that has failed throws its
///   failure in each later call, and `Context::check` or `Context::synchronize` throw it once: {Code::mismatch} if the
///   buffers have different sizes, {Code::peer_lost}, {Code::aborted}, {Code::transport} and others as for a Sender. It
///   ends all waits at both ends.
///
/// @par Threads
///   Any number of threads at a time, but for `close` and moves. Which of several puts that wait for the same bytes
///   comes first is not determined.
///
/// @par Source
///   RAPIDS Channel API: Shipley, Skjellum, Bangalore, Bridges, "RAPIDS Channel API: Improved Persistent
///   Communication".
class SLUICE_EXPORT SegmentSender {
 public:
  /// The most puts that are under way and that the receiver has not taken note of.
  static constexpr std::size_t kMostUnderWay = 16;

  SegmentSender() noexcept = default;
  /// Opens the sending end to `peer`, which may be this rank. Returns at once, before the peer has opened its end. The
  /// i-th opening of (peer, tag) here matches the i-th there. Tags are those of segmented channels alone. The channel
  /// keeps `source`, which is not empty.
  /// @throws Error as Context::sender
  SegmentSender(Context& context, Rank peer, Tag tag, const Slice& source);
  SegmentSender(SegmentSender&&) noexcept = default;
  /// Closes the channel that was here, as the destructor does.
  SegmentSender& operator=(SegmentSender&&) noexcept;
  /// Closes this end, and waits up to the connect timeout. If streams or the peer still use it then, the channel fails
  /// with {Code::aborted}, Sluice logs that, and the memory is kept: memory of a Region must stay for as long, so call
  /// `close` for it. If an exception is unwinding the stack, the peer's end fails with {Code::peer_lost}.
  ~SegmentSender();

  /// Puts the range. Blocks the host until all its bytes are writable and the put has begun. The source must not change
  /// until `wait` of it has returned. An empty range puts nothing.
  /// @throws Error{Code::misuse}: the receiver has closed; {Code::timeout}: nothing was put
  void i_put(std::size_t offset, std::size_t count, std::optional<Timeout> timeout = kContextTimeout);
  /// Like `i_put`, in the order of `stream`, which waits until the bytes are writable.
  void i_put(Stream stream, std::size_t offset, std::size_t count);
  /// Like `i_put` if that need not wait. False: some byte is written and not released, or the receiver has not opened
  /// its end, or 16 puts are under way. Nothing has changed then.
  bool try_put(std::size_t offset, std::size_t count);

  /// Blocks the host until every put of a byte of the range that has begun has left the source, which may then be
  /// changed. It may not have arrived.
  void wait(std::size_t offset, std::size_t count, std::optional<Timeout> timeout = kContextTimeout);
  /// Later work on `stream` may change the source.
  void wait(Stream stream, std::size_t offset, std::size_t count);
  /// True if `wait` would not block.
  bool test(std::size_t offset, std::size_t count);

  /// Blocks the host until the peer has opened its end. @throws as ChannelHandle::wait_connected
  void wait_connected(std::optional<Timeout> timeout = kContextTimeout);
  /// Closes this end. Blocks the host until all that streams were given has completed, all puts have arrived, and the
  /// source may be freed. The receiver can still wait for what was put. Closing a closed end does nothing. It does not
  /// throw the failure of the channel.
  /// @throws Error{Code::timeout}: only `close` may be called again
  void close(std::optional<Timeout> timeout = kContextTimeout);

  std::size_t bytes() const noexcept;
  Rank peer() const noexcept;
  Tag tag() const noexcept;
  /// One line for people: how the bytes move. @throws Error{Code::misuse} if the handle is empty
  std::string describe() const;

 private:
  std::shared_ptr<segments::SenderEnd> end_;
};

/// The receiving end of a segmented channel: a target buffer, of which the receiver waits for any range and releases
/// it, in any order. "Bytes", "Streams", "Errors" and "Threads" of SegmentSender hold here too.
class SLUICE_EXPORT SegmentReceiver {
 public:
  SegmentReceiver() noexcept = default;
  /// Opens the receiving end of a channel from `peer`. `target` is not empty. Else as for SegmentSender.
  SegmentReceiver(Context& context, Rank peer, Tag tag, const Slice& target);
  SegmentReceiver(SegmentReceiver&&) noexcept = default;
  /// Closes the channel that was here, as the destructor does.
  SegmentReceiver& operator=(SegmentReceiver&&) noexcept;
  /// As that of SegmentSender.
  ~SegmentReceiver();

  /// Blocks the host until every byte of the range has arrived since it was last released, and returns the range. The
  /// sender does not touch these bytes before they are released. Waiting for bytes again, before their release, ends at
  /// once. An empty range has always arrived.
  /// @throws Error{Code::closed}: the sender has closed, and some of these bytes will never come; {Code::timeout}
  Slice wait(std::size_t offset, std::size_t count, std::optional<Timeout> timeout = kContextTimeout);
  /// Like `wait`, but a timeout is no error: returns nothing then.
  std::optional<Slice> wait_for(std::size_t offset, std::size_t count, Timeout timeout);
  /// Like `wait_for` without blocking.
  std::optional<Slice> test(std::size_t offset, std::size_t count);
  /// Later work on `stream` sees every byte of the range, which is returned.
  Slice wait(Stream stream, std::size_t offset, std::size_t count);

  /// Gives the bytes back: the sender may put them again. They must have arrived; whether a wait has returned them does
  /// not matter. Does not block.
  /// @throws Error{Code::misuse} if a byte of the range was not put, has not arrived, or was released: then none is
  ///   released
  void release(std::size_t offset, std::size_t count);
  /// Gives the bytes back in the order of `stream`. A release that `release` would refuse fails the channel with
  /// {Code::misuse}.
  void release(Stream stream, std::size_t offset, std::size_t count);

  void wait_connected(std::optional<Timeout> timeout = kContextTimeout);
  /// Closes this end. Blocks the host until all that streams were given has completed, and the target may be freed.
  /// Bytes that were put are dropped, and later puts throw {Code::misuse}. Else as SegmentSender::close.
  void close(std::optional<Timeout> timeout = kContextTimeout);

  std::size_t bytes() const noexcept;
  Rank peer() const noexcept;
  Tag tag() const noexcept;
  std::string describe() const;

 private:
  friend class WaitAny;
  std::shared_ptr<segments::ReceiverEnd> end_;
};

}  // namespace sluice
