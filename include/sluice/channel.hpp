// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/batch.hpp>
#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

class DeviceReceiver;
class DeviceSender;

namespace runtime {
class ChannelEnd;
}

namespace detail {
struct ChannelAccess;
}

/// Options of one end of a channel. The texts are copied.
struct ChannelOptions {
  /// Number of slots of this end, 1 or more: target slots of a Receiver, source slots of a Sender. The two ends may
  /// have different depths. The sender can be as many epochs ahead of the releases as the receiver has slots.
  int depth = 1;
  /// 0 or 1. Both mean that Sluice chooses how many rails carry the slots (or SLUICE_RAILS does).
  int rails = 0;
  /// A name for `describe()`, logs and traces; at most 4096 characters.
  std::string_view name = {};
  /// A stream of the kind, and for GPUs of the device, that the channel will be used with. Then the GPU's mappings are
  /// made when the channel connects, and not at its first use.
  std::optional<Stream> stream = {};
  /// A description of what a slot holds, in words of the program's, for example "3 doubles". If both ends have one and
  /// they differ, both ends fail with Code::mismatch. Beyond 64 KiB a hash is compared.
  std::string_view contents = {};
  /// If true, `Receiver::bytes` returns how many bytes a put had. Each put then costs a second one, of 16 bytes, which
  /// over a network is one more message, and for a NIC one more entry. Plans do not share a doorbell for such
  /// channels, and kernels cannot drive them (`on_device`, captured plans). Set it at the Receiver; at a Sender
  /// it does nothing.
  bool lengths = false;
  /// True: the slots of a Receiver may overlap those of other Receivers that say so, too; the program sees to it that
  /// puts into the same bytes come one after the other. Without it SLUICE_CHECK=1 refuses such slots. At a Sender it
  /// does nothing.
  bool shared_memory = false;
};

/// The base of Sender and Receiver. A handle that is made without arguments, or was moved from, is empty: `peer` is -1,
/// `tag` and `epoch` are 0, and all other calls throw Error{Code::misuse}.
class SLUICE_EXPORT ChannelHandle {
 public:
  /// True if the peer has opened its end and the two ends are connected. Does not block.
  /// @throws the failure of the channel; Error{Code::misuse} if the handle is empty.
  bool connected() const;
  /// Blocks the host until `connected`.
  /// @throws Error{Code::timeout}: nothing has changed; {Code::misuse} if the handle is empty; else the failure of the
  ///   channel, for example {Code::mismatch}.
  void wait_connected(std::optional<Timeout> timeout = kContextTimeout);

  /// Closes this end: no verb follows. Blocks the host until the memory of its slots may be freed, that is, until every
  /// enqueued put, wait and release has completed, puts have arrived, and the peer no longer uses this end. Epochs that
  /// a Receiver has not waited for are dropped. The peer need not close at the same time. Closing a closed channel does
  /// nothing. `close` works on a failed channel too, and does not throw its failure.
  /// @throws Error{Code::timeout}: the memory is still in use, and only `close` may be called again; {Code::misuse} if
  ///   the handle is empty.
  void close(std::optional<Timeout> timeout = kContextTimeout);

  Rank peer() const noexcept;
  Tag tag() const noexcept;
  /// Number of puts of a Sender, or waits of a Receiver, that are enqueued; if kernels drive the channel, that have
  /// begun.
  std::uint64_t epoch() const noexcept;
  /// One line for people: the backend, the path of the bytes, what fires the puts (stream, NIC or engine), and why
  /// nothing better was possible. @throws Error{Code::misuse} if the handle is empty.
  std::string describe() const;

 protected:
  friend struct detail::ChannelAccess;
  ChannelHandle() noexcept = default;
  explicit ChannelHandle(std::shared_ptr<runtime::ChannelEnd> end) noexcept : end_(std::move(end)) {}
  ChannelHandle(ChannelHandle&&) noexcept = default;
  /// Closes the channel that was here, as the destructor does.
  ChannelHandle& operator=(ChannelHandle&&) noexcept;
  /// Closes the channel, and waits up to the connect timeout. If the memory is still in use then, Sluice logs that and
  /// keeps it until nothing uses it; memory of a Region must stay for as long, so call `close` for it. If an exception
  /// is unwinding the stack, the peer's end fails with Code::peer_lost, and all channels of the thread together wait
  /// for at most 5 s.
  ~ChannelHandle();

  std::shared_ptr<runtime::ChannelEnd> end_;
};

/// The sending end of a persistent one-way channel. Movable, not copyable.
///
/// Put number n is epoch n = 1, 2, ... Epoch n is read from source slot n mod depth and lands in target slot n mod (the
/// receiver's depth). The slots of both ends have the same size.
///
/// @par Verbs
///   `acquire` and `put` happen in the order of a stream. In program order the caller is the stream, and they block it.
///   On a HostStream or a GPU's stream they are enqueued, and the call returns at once. The first verb decides the kind
///   of stream, and for GPUs the device. Later verbs may name another such stream if the program orders the two.
///   In program order and on a GPU's stream, the first verb blocks the host until the peer has opened its end. On a
///   GPU's stream over a network, `put` blocks the host while 4096 puts are enqueued and not sent.
///
/// @par Errors of verbs
///   - {Code::misuse}: the handle is empty, or the HostStream was moved from; this is a child of fork; the stream is of
///     another kind or GPU than before, or than ChannelOptions::stream; this end is closed; a plan or kernels drive it;
///     the peer has closed its end, and this epoch will never complete. Nothing has changed.
///   - {Code::unsupported}: this build or machine cannot drive the stream, or the stream captures a graph.
///   - {Code::timeout}: the first verb has waited for the peer for the connect timeout. Nothing has changed; try again.
///   - {Code::out_of_resources}: the GPU's driver refused a mapping.
///   - The failure of the channel, with any code: see below.
///
/// @par Failures
///   A failed channel stays failed. The failure ends all waits of the channel at both ends: later work on the streams
///   runs. In program order, on a HostStream and in the engine, puts then move nothing. A put that is enqueued on a
///   GPU's stream, or armed at a NIC, may still move its bytes. Until `Context::check` or `Context::synchronize`
///   returns without an error, results of the streams are undefined. It is recorded, and `Context::check` or
///   `Context::synchronize` throws it once. Every later call of the channel throws it too, except `close`, `describe`,
///   `peer`, `tag` and `epoch`. In program order, `acquire`, `put` and `wait` themselves throw a failure that ends
///   their wait, for example {Code::timeout}. On a GPU's stream, `put` and `wait` throw {Code::transport} if the driver
///   refuses the work.
///
/// @par Threads
///   One thread at a time, which may be the thread of a HostStream.
class SLUICE_EXPORT Sender : public ChannelHandle {
 public:
  /// Returns the source slot of the next put. Later work on `stream` runs only when that slot may be overwritten: every
  /// earlier put from it has been sent. In program order that is so when the call returns.
  /// @throws Error see "Errors of verbs".
  Slice acquire(Stream stream);

  /// Enqueues the next epoch: a put of the whole slot. On the stream, the put waits until the receiver has released the
  /// epoch that was in the target slot before, moves the bytes, and then raises the receiver's signal. In program order
  /// the call returns when that is done between ranks of one host; over a network it returns when the put is under way.
  /// `acquire` waits until the source may be overwritten, `drain` until the signals have been raised.
  /// @throws Error see "Errors of verbs".
  void put(Stream stream);

  /// A put of `bytes` bytes from `offset` in the slot. They land at the same offset of the target slot, whose other
  /// bytes stay as they are. 0 bytes only raise the signal.
  /// @throws Error{Code::bad_argument} if the bytes do not lie inside the slot; else as `put`.
  void put(Stream stream, std::size_t offset, std::size_t bytes);

  // Several epochs in one call, for small messages: what a call costs beside its bytes is paid once.

  /// Returns the source slots of the next `count` puts, as `acquire` does for one: all of them may be overwritten.
  /// `count`: 0 to the number of slots of this end.
  /// @throws Error{Code::bad_argument} for a larger `count`; else as `acquire`.
  Batch acquire(Stream stream, std::size_t count);

  /// Enqueues the next `count` epochs, as so many calls of `put(stream)` would, each a whole slot. All that the
  /// receiver has credited when the stream comes to them travel together: on memory that is mapped, slots that are
  /// neighbours at both ends are one copy, and the signal rises once, to the last epoch. So these arrive together, and
  /// the first no earlier than the last. Those without credit follow as credits come. On a GPU's stream, only credits
  /// that are there when `put` is called count. A channel whose receiver has ChannelOptions::lengths, or whose puts a
  /// NIC fires, has a signal for each; over a network, each epoch is a message, and the engine is woken once.
  /// `count`: 0 to the number of slots of this end.
  /// @throws Error{Code::bad_argument} for a larger `count`; {Code::misuse} also if the peer has closed its end and one
  ///   of these epochs will never complete: then none is enqueued; else as `put`.
  void put(Stream stream, std::size_t count);

  /// True if the next put would wait neither for the peer to open its end nor for credit. A host that has other work
  /// polls it in place of a put that blocks. It says nothing of the source, which `acquire` or `drain` hand back.
  /// @throws Error{Code::misuse} if the handle is empty, if the peer has closed its end, or if this end is closed, in a
  ///   committed plan or driven by kernels; else the failure of the channel.
  bool credited();

  /// Blocks the host until the signal of every enqueued put has been raised. Over a network that takes one round trip
  /// to the peer.
  /// @throws Error{Code::timeout}: nothing has changed; {Code::misuse} if the handle is empty; else the failure of the
  ///   channel.
  void drain(std::optional<Timeout> timeout = kContextTimeout);

  /// Gives this end to kernels (sluice/device.hpp), which alone drive it from now on. They run on streams of the kind
  /// and the device of `stream`; on a HostStream and in program order, any function is a kernel. Blocks the host until
  /// the ends are connected and all earlier puts have been sent.
  /// @throws Error{Code::unsupported} if kernels cannot drive this end, for example if the target is memory of another
  ///   process that cannot be mapped. Else see "Errors of verbs". After an error the channel is used as before,
  ///   on streams of the kind of `stream`.
  DeviceSender on_device(Stream stream);

 private:
  friend struct detail::ChannelAccess;
  using ChannelHandle::ChannelHandle;
};

/// The receiving end of a persistent one-way channel. Movable, not copyable. The verbs are `wait` and `release`. Their
/// errors, failures and threads are those of a Sender.
class SLUICE_EXPORT Receiver : public ChannelHandle {
 public:
  /// Enqueues a wait for the next epoch, and returns its slot. Later work on the stream sees every byte of that epoch.
  /// In program order that is so when the call returns. After a partial put the other bytes of the slot are unchanged.
  /// The sender does not touch the slot before its `release`.
  /// @throws Error see Sender, "Errors of verbs"; {Code::closed} if the peer has closed its end and will never put this
  ///   epoch, for which a wait that is enqueued fails the channel.
  Slice wait(Stream stream);

  /// Enqueues the release of the oldest epoch that was waited for: the sender may overwrite its slot. Over a network
  /// the sender may learn that with the next put of this rank to it; if there is none, one or two milliseconds later.
  /// @throws Error see Sender, "Errors of verbs"; {Code::misuse} also if every epoch that was waited for is released.
  void release(Stream stream);

  /// If the epoch after the last one waited for has landed, waits for it and returns its slot. Otherwise nothing
  /// changes, as when the peer has closed its end and will never put this epoch (see `closed`). Does not block.
  /// @throws Error{Code::misuse} if the handle is empty; if this end is closed, in a committed plan or driven by
  ///   kernels. Else the failure of the channel.
  std::optional<Slice> test();
  /// Like `test`, but blocks the host until the epoch has landed, for at most `timeout`. A timeout is no error. Calls
  /// that wait for the same epoch count as one wait for the warnings of SLUICE_WARN.
  /// @throws Error as `test`.
  std::optional<Slice> wait_for(Timeout timeout);

  // Several epochs in one call, however they were put.

  /// Enqueues a wait for the next `count` epochs, and returns their slots. Later work on the stream sees every byte of
  /// all of them. `count`: 0 to the number of slots of this end. Slots of earlier epochs that are not released are not
  /// free: a wait for more than the others never ends.
  /// @throws Error{Code::bad_argument} for a larger `count`; {Code::closed} if one of these epochs will never be put:
  ///   then none is waited for; else as `wait`.
  Batch wait(Stream stream, std::size_t count);

  /// Enqueues the release of the `count` oldest epochs that were waited for. On memory that is mapped that is one store
  /// for all of them, and over a network one message, unless a NIC fires the credits. 0 releases nothing.
  /// @throws Error{Code::misuse} also if fewer are left: then none is released; else as `release`.
  void release(Stream stream, std::size_t count);

  /// Waits for all epochs that have landed, and returns their slots: as many calls of `test` as succeed. An empty batch
  /// is what a `test` that fails is. Does not block.
  /// @throws Error as `test`.
  Batch test_some();
  /// Like `test_some`, but blocks the host until one epoch has landed at least, for at most `timeout`. Empty: a
  /// timeout, which is no error, or the peer has closed (see `closed`).
  /// @throws Error as `test`.
  Batch wait_some(Timeout timeout);

  /// True once the peer has closed its end and every epoch that it has put is waited for: a loop of `test`, `wait_for`
  /// or `wait_some` ends here. Does not block.
  /// @throws Error{Code::misuse} if the handle is empty; the failure of the channel, unless that is Code::closed.
  bool closed() const;

  /// Number of bytes of the put that the last completed wait has seen: of a partial put those of the part, whose offset
  /// is not told. In program order the last wait is the last epoch of the last call of `wait`, `test`, `wait_for`,
  /// `test_some` or `wait_some`; on a stream it is the last one that the stream has completed, so a callable between a
  /// `wait` and its `release` finds its own. Call it before the epoch is released. A plan may drive the channel. Does
  /// not block.
  /// @throws Error{Code::misuse} without ChannelOptions::lengths, before the first wait has completed, after the
  ///   release of the epoch, if this end is closed or the handle is empty. Else the failure of the channel.
  std::size_t bytes() const;
  /// Number of bytes of the put of `epoch`, for one of a Batch.
  /// @throws Error{Code::misuse} if no wait for `epoch` has completed; else as `bytes`.
  std::size_t bytes(std::uint64_t epoch) const;

  /// Gives this end to kernels, as Sender::on_device does.
  /// @throws Error as Sender::on_device; {Code::misuse} also if an enqueued wait has not completed.
  DeviceReceiver on_device(Stream stream);

 private:
  friend struct detail::ChannelAccess;
  using ChannelHandle::ChannelHandle;
};

}  // namespace sluice
