// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

class DeviceReceiver;
class DeviceSender;

namespace detail {
class SenderCore;
class ReceiverCore;
struct ChannelAccess;
}  // namespace detail

struct ChannelOptions {
  int depth = 1;                      ///< slots at this end: target slots of a Receiver, source slots of a Sender
  int rails = 0;                      ///< how many rails to stripe over; 0: chosen
  std::string_view name = {};         ///< copied; shown by describe(), logs and traces
  std::optional<Stream> stream = {};  ///< its kind and device, if known at opening
  /// What a slot holds, in words of the program's: copied. Ends that both say it and differ fail with Code::mismatch.
  /// Beyond 64 KiB a hash is compared.
  std::string_view contents = {};
};

/// The out-end of a persistent one-way channel. Movable, not copyable; one thread or stream at a time.
///
/// Put number n is epoch n = 1, 2, ... Epoch k is read from source slot k mod depth and lands in target slot k mod (the
/// receiver's depth), both of the same size. Calls on a failed channel throw its error,
/// always; only `close` does its work, and says when the memory may be freed.
class SLUICE_EXPORT Sender {
 public:
  /// Empty: every call but the destructor and assignment throws Error{Code::misuse}.
  Sender() noexcept;
  Sender(Sender&&) noexcept;
  /// Closes what was here, as the destructor does.
  Sender& operator=(Sender&&) noexcept;
  /// Closes, waiting up to the connect timeout; what is still in use then is kept and reported, and reclaimed later.
  /// While an exception passes, the peer is told that this rank is lost.
  ~Sender();

  /// The source slot of the next put. On `stream`, later work runs only when that slot may be overwritten.
  Slice acquire(Stream stream);

  /// Enqueues the next epoch: the whole slot. On the stream, waits for the epoch `depth` puts ago to have been released
  /// by the receiver, moves the bytes, then raises the receiver's signal. In program order this has happened at return.
  void put(Stream stream);

  /// The same for `bytes` bytes from `offset` in the slot; 0 bytes is legal and signals once.
  /// @throws Error{Code::bad_argument} if they do not lie inside the slot.
  void put(Stream stream, std::size_t offset, std::size_t bytes);

  /// Returns true if the next put would wait neither for the peer to open its end nor for credit. A host that has other
  /// work polls it in place of a put that blocks.
  /// @throws Error recorded when the channel failed; Error{Code::misuse} if the peer has closed its end, or this end is
  ///   closed, in a plan, or driven by kernels
  bool credited();

  /// Blocks the host until the signal of every enqueued put has been raised. Over a network that asks the peer's side,
  /// which costs a way there and back.
  void drain(std::optional<Timeout> timeout = kContextTimeout);

  /// Whether the peer has opened its end, and this end has heard of it.
  /// @throws what the channel has failed of
  bool connected() const;
  void wait_connected(std::optional<Timeout> timeout = kContextTimeout);

  /// The same end inside kernels (sluice/device.hpp), which drive it from now on, alone. They run on streams of the
  /// kind and device of `stream`, where a kernel of the host is any function. Blocks the host until connected.
  /// @throws Error{Code::unsupported} if no kernel can: where the target is memory of another process, not mapped here.
  DeviceSender on_device(Stream stream);

  /// Announces that no put follows, and returns when the source memory may be freed: every enqueued put has fired, and
  /// the peer's engine has let go of this end. The peer need not close at the same time. After a
  /// timeout `close` may be tried again; every other call is refused.
  void close(std::optional<Timeout> timeout = kContextTimeout);

  Rank peer() const noexcept;
  Tag tag() const noexcept;
  /// Puts enqueued so far; where kernels do them, those begun.
  std::uint64_t epoch() const noexcept;
  /// Backend, memory path, who fires, and why nothing better was possible.
  std::string describe() const;

 private:
  friend struct detail::ChannelAccess;
  explicit Sender(std::shared_ptr<detail::SenderCore> core) noexcept;

  std::shared_ptr<detail::SenderCore> core_;
};

/// The in-end of a persistent one-way channel. Movable, not copyable; one thread or stream at a time.
class SLUICE_EXPORT Receiver {
 public:
  /// Empty: every call but the destructor and assignment throws Error{Code::misuse}.
  Receiver() noexcept;
  Receiver(Receiver&&) noexcept;
  /// Closes what was here, as the destructor does.
  Receiver& operator=(Receiver&&) noexcept;
  /// Closes, waiting up to the connect timeout; what is still in use then is kept and reported, and reclaimed later.
  ~Receiver();

  /// Enqueues a wait for the next epoch and returns its slot. Later work on the stream sees every byte of that epoch.
  /// After a partial put the bytes outside the part are untouched.
  Slice wait(Stream stream);

  /// Gives back the oldest epoch that was waited for: the sender may overwrite its slot.
  /// Over a network the sender may hear of it with the next put of this rank to it; if none comes, a millisecond or two
  /// later.
  /// @throws Error{Code::misuse} if every epoch waited for was released already.
  void release(Stream stream);

  /// The slot of the epoch after the last one waited for, if it has landed; that counts as a wait. Otherwise nothing
  /// changes.
  std::optional<Slice> test();
  /// The same, blocking the host up to `timeout`. Where that is asked again and again, SLUICE_WARN counts from the
  /// first.
  std::optional<Slice> wait_for(Timeout timeout);

  /// Whether the peer has opened its end, and this end has heard of it.
  /// @throws what the channel has failed of
  bool connected() const;
  void wait_connected(std::optional<Timeout> timeout = kContextTimeout);

  /// As Sender::on_device.
  DeviceReceiver on_device(Stream stream);

  /// Announces that no release follows, and returns when the target memory may be freed: all enqueued work has passed,
  /// and the peer's engine has let go of this end. The peer need not close at the same time. After a
  /// timeout `close` may be tried again; every other call is refused.
  void close(std::optional<Timeout> timeout = kContextTimeout);

  Rank peer() const noexcept;
  Tag tag() const noexcept;
  /// Waits enqueued so far; where kernels do them, those begun.
  std::uint64_t epoch() const noexcept;
  std::string describe() const;

 private:
  friend struct detail::ChannelAccess;
  explicit Receiver(std::shared_ptr<detail::ReceiverCore> core) noexcept;

  std::shared_ptr<detail::ReceiverCore> core_;
};

}  // namespace sluice
