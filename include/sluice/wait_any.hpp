// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/channel.hpp>
#include <sluice/export.hpp>
#include <sluice/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace sluice {

class DeviceArrivals;
class SegmentReceiver;
class Window;

namespace detail {
class WaitAnyCore;
struct AnyTicket;
}  // namespace detail

/// Waits for the first of several receivers that gets its next epoch, as MPI_Waitany does for requests. A host that
/// hands out tasks takes the results with it. Without a stream it is a host form, like Receiver::wait_for: the epoch
/// that it returns counts as waited for, and `Receiver::release` of that receiver releases it.
///
/// The receivers may have different peers, backends, depths and slots; they belong to one rank, and need not be
/// connected yet. They are looked at in turn, so that one that always has a message keeps no other waiting. An object
/// may be used again and again; making one is cheap, but for each wait to have its own would begin with the first
/// receiver each time, and on streams of GPUs it has a thread and channels for each stream. A receiver may be in
/// several objects, and its own calls go on as usual.
///
/// Ranges of a SegmentReceiver and counters of a Window may be waited for together with receivers. Below, "receiver"
/// means these too.
///
/// A receiver leaves the object, and the others stay, when
///   - its peer has closed, and all epochs that it announced were taken: reported once, as an Arrival without a slot;
///   - it has failed: the failure is thrown once, and names the channel;
///   - it was closed here: not reported.
///
/// Movable, not copyable. An object that was moved from is empty.
///
/// @par Streams
///   `wait(stream)` and `wait_some(stream)` are waits in the order of a stream: later work on it runs once one receiver
///   has its next epoch, and finds in a Ticket which one that was. In program order they block the host.
///   The wait may take from any of the receivers, so all of them are used by the stream from the call until the wait
///   has ended: until then no other thread uses or closes one of them, nor this object. Callables on the stream may use
///   the receivers by verbs in program order and by host forms, and this object too.
///   A receiver that fails ends the wait as it ends one of its own: the stream goes on, unless
///   HostStream::Options::stop_after_failure is set, and `synchronize` throws the failure. The next wait is for the
///   others. All other failures stop the stream, as a callable that throws does, and fail no receiver: {Code::timeout}
///   if the wait has lasted for HostStream::Options::timeout or the limit of the context; {Code::aborted} if the stream
///   or the WaitAny is destroyed; {Code::misuse} if a plan or kernels drive a receiver. A wait that a stopped stream
///   reaches takes nothing.
///
/// @par Streams of GPUs
///   Waits on streams of GPUs differ in this. A thread of the library takes the messages and carries out the releases;
///   the stream waits for a word. Kernels find the arrivals by `Ticket::on_device`, and the bytes in the slots, which
///   lie in memory of the host or of that GPU. An object serves streams of one GPU. The stream knows no limit and
///   cannot stop: `Context::check` and `synchronize` throw the failure of a receiver, and all other failures, which
///   leave the receivers as they are and end all waits of this object on streams of GPUs, also later ones: work behind
///   them runs, and finds no arrivals. The receivers may not be used by their own verbs on streams of GPUs. Waits
///   cannot be captured into a graph.
///
/// @par Threads
///   One thread at a time, which counts as a user of each of the receivers. The thread of a stream counts as one from
///   `wait(stream)` on. Until its waits and releases have ended, calls of other threads throw {Code::misuse}, but
///   for `wait`, `wait_some` and `release` on the same stream. `left`: any thread, once something was added.
class SLUICE_EXPORT WaitAny {
 public:
  /// The result of a wait.
  struct Arrival {
    /// The receiver, as the number of those that were added before it.
    std::size_t index = 0;
    /// The slot of its epoch, as Receiver::wait_for returns it, or the range of a SegmentReceiver. Nothing: the peer
    /// has closed, and no epoch follows; or it is a counter.
    std::optional<Slice> slot;
    /// The count of a counter, as Window::count returns it. Nothing: it is no counter.
    std::optional<std::uint64_t> count;

    bool closed() const noexcept { return !slot && !count; }
  };

  /// The result of a wait on a stream, for callables behind it, and for the host after `synchronize`. A ticket made
  /// without arguments is empty. Copies are cheap, and are of the same wait; any thread may use them.
  class SLUICE_EXPORT Ticket {
   public:
    Ticket() noexcept = default;
    /// True once the wait has ended, also by a failure. An empty ticket: false.
    bool done() const noexcept;
    /// The arrivals that the wait has taken: one of `wait`, one or more of `wait_some`. Empty: no receiver was left.
    /// @throws Error{Code::misuse} if the ticket is empty or the wait has not ended; else what ended the wait: the
    ///   failure of a receiver, {Code::timeout}, or {Code::aborted}.
    const std::vector<Arrival>& arrivals() const&;
    std::vector<Arrival> arrivals() const&&;
    /// The first of these; nothing if there is none. @throws Error as `arrivals`
    std::optional<Arrival> arrival() const;
    /// The arrivals for kernels that the program gives to the stream of the wait behind it, while a copy of the ticket
    /// exists. They run before the WaitAny is destroyed. May be called before the wait has ended.
    /// @throws Error{Code::misuse} if the ticket is empty, or of no wait on a stream of a GPU
    DeviceArrivals on_device() const;

   private:
    friend class WaitAny;
    explicit Ticket(std::shared_ptr<detail::AnyTicket> state) noexcept : state_(std::move(state)) {}
    std::shared_ptr<detail::AnyTicket> state_;
  };

  WaitAny() noexcept = default;
  /// Adds all, in this order. @throws Error as `add`.
  explicit WaitAny(std::span<Receiver> receivers);
  WaitAny(WaitAny&&) noexcept = default;
  /// Ends the waits of the object that was here, as the destructor does.
  WaitAny& operator=(WaitAny&&) noexcept;
  /// Ends waits on streams that have not ended, also those that have not begun: see "Streams". When it returns, no
  /// stream uses the receivers any more, and they may be closed. Waits until the streams of GPUs have passed its
  /// waits and releases, for the connect timeout of the context at most.
  ~WaitAny();

  /// Adds one more, and returns its index. The handle may be moved later; to destroy it closes the receiver as always.
  /// @throws Error{Code::misuse} if the handle is empty, or the receiver is closed, in a committed plan, driven by
  ///   kernels, or of another rank or another `mpi::context` than those before; in a child of fork.
  std::size_t add(Receiver& receiver);
  /// Adds the range of `count` bytes from `offset` on. It is reported once all its bytes have arrived, and again once
  /// they have arrived anew after a release of any of them. Reporting it releases nothing. The handle may be moved
  /// later. An empty range is reported once.
  /// @throws Error{Code::bad_argument} if the bytes do not lie inside the buffer; else as above
  std::size_t add(SegmentReceiver& receiver, std::size_t offset, std::size_t count);
  /// Adds a counter. It is reported once it has counted `value` accesses from now on, and then whenever it has counted
  /// as many more, also if `Window::fetch_and_zero` lets the count begin anew meanwhile. The handle may be moved later,
  /// and the window must be open while this object is used.
  /// @throws Error{Code::bad_argument} if there is no such counter, or `value` is 0 or is never reached; else as above
  std::size_t add(Window& window, std::uint32_t counter, std::uint64_t value);

  /// Blocks the host until one of the receivers has its next epoch, waits for that epoch, and returns its slot. Returns
  /// nothing once no receiver is left.
  /// @throws Error{Code::timeout}: nothing has changed; {Code::misuse} if a plan or kernels drive a receiver by now, or
  ///   in a child of fork; else the failure of a receiver, which is left out from then on.
  std::optional<Arrival> wait(std::optional<Timeout> timeout = kContextTimeout);
  /// Like `wait`, but a timeout is no error: returns nothing then, too (`left` tells the two apart). With a timeout of
  /// 0 it does not block.
  /// @throws Error as `wait`, but for {Code::timeout}.
  std::optional<Arrival> wait_for(Timeout timeout);

  /// Like `wait`, and then takes all other epochs that have arrived, at most one of each receiver, without blocking.
  /// Returns them, in the order in which they had their turn; nothing once no receiver is left. A failure that it finds
  /// behind the first arrival is thrown by the next call.
  /// @throws Error as `wait`
  std::vector<Arrival> wait_some(std::optional<Timeout> timeout = kContextTimeout);
  /// Like `wait_some`, but a timeout is no error: returns nothing then, too.
  /// @throws Error as `wait_for`
  std::vector<Arrival> wait_some_for(Timeout timeout);

  /// Enqueues a wait for one of the receivers, and returns at once: later work on `stream` runs when the wait has
  /// ended, and finds what it has taken in the ticket. Waits that are enqueued one after the other take in turn. If no
  /// receiver is left, the wait ends at once. In program order it is `wait()`, and the ticket is done.
  /// @throws Error{Code::misuse} if another stream uses this object, if the HostStream was moved from, or in a child of
  ///   fork; in program order as `wait()`. On a stream of a GPU also {Code::unsupported} if it captures a graph;
  ///   {Code::misuse} if nothing was added, if the GPU is another than before, or a receiver is used by its own verbs
  ///   on streams of GPUs; {Code::out_of_resources}; the failure that has ended such waits.
  Ticket wait(Stream stream);
  /// Like `wait(stream)`, for all that have arrived when the first one has, as `wait_some()` takes them.
  /// @throws Error as `wait(stream)`
  Ticket wait_some(Stream stream);
  /// Enqueues the release of all that a wait of this object has taken: of an epoch as `Receiver::release`, of a range
  /// as `SegmentReceiver::release`. Nothing is to be released of a counter, of a wait that has failed, and of a
  /// receiver that has left. In place of it, callables may release in program order. Epochs of one receiver are
  /// released in the order in which they were taken, whichever ticket is named first.
  /// @throws Error{Code::misuse} if the ticket is empty, of another object, or was released; else as `wait(stream)`. A
  ///   release that a receiver refuses, after those of the others, and one that comes before its wait because two
  ///   streams are not ordered, stops the stream; in program order it throws.
  void release(Stream stream, const Ticket& ticket);

  /// Number of receivers that have not left. One that has failed counts until its failure was thrown.
  std::size_t left() const noexcept;

 private:
  std::shared_ptr<detail::WaitAnyCore> core_;
};

}  // namespace sluice
