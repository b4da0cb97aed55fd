// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/channel.hpp>
#include <sluice/error.hpp>
#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/plan.hpp>
#include <sluice/stream.hpp>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

namespace sluice {

namespace detail {
struct ContextAccess;
}

/// Tags of its own: user code, a halo and another library never collide.
class SLUICE_EXPORT Scope {
 public:
  /// Empty: every call throws Error{Code::misuse}.
  Scope() noexcept = default;
  Sender sender(Rank peer, Tag tag, Slice source, ChannelOptions options = {});
  Receiver receiver(Rank peer, Tag tag, Slice target, ChannelOptions options = {});

 private:
  friend class Context;
  struct Impl;
  explicit Scope(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
  Impl& in() const;
  std::shared_ptr<Impl> impl_;
};

/// A group of ranks, and the one object that a program makes things from. A handle: copies share ownership. Any thread
/// may use it. In a child of fork, its calls and those of all that was made from it throw Error{Code::misuse}, and
/// destructors do nothing.
class SLUICE_EXPORT Context {
 public:
  /// Empty, as after a move: `rank` is -1, `size` 0, and every other call throws Error{Code::misuse}.
  Context() noexcept = default;
  Rank rank() const noexcept;
  int size() const noexcept;
  /// This rank among those on the same host: a machine, or a container with a network of its own.
  int node_rank() const noexcept;
  int node_size() const noexcept;
  /// How long a wait for a live peer may last, and how long opening and closing may: by Options, or the environment.
  Timeout timeout() const;
  Timeout connect_timeout() const;

  /// Pinned, zeroed, peer-mappable memory, aligned to 64 bytes (to a page from 4096 bytes on; a GPU's to 256 bytes).
  /// `device`: of Space::device, a GPU as the vendor's runtime counts them; -1: the calling thread's current one.
  /// @throws Error{Code::out_of_resources}, {Code::bad_argument} for 0 bytes or no such device.
  Memory allocate(std::size_t bytes, Space space = Space::host, int device = -1);

  /// Pins `bytes` bytes of the user's memory, the host's or a GPU's, which stays the user's. What a stream allocates
  /// (cudaMallocAsync) must be there already, and not only enqueued.
  /// @throws Error{Code::out_of_resources, Code::bad_argument}
  Region region(void* memory, std::size_t bytes);

  /// Opens the out-end of a channel to `peer`; returns at once, and is not collective. The i-th opening of (peer, tag)
  /// here matches the i-th opening of the in-end there. `source` is options.depth slots of equal size.
  /// @throws Error{Code::bad_argument, Code::out_of_resources, Code::misuse for a duplicate while the first is open}
  Sender sender(Rank peer, Tag tag, Slice source, ChannelOptions options = {});
  /// Opens the in-end of a channel from `peer`; likewise.
  Receiver receiver(Rank peer, Tag tag, Slice target, ChannelOptions options = {});

  Plan plan();

  /// A scope of tags; the same name, of up to 4096 characters, is the same scope everywhere.
  /// @throws Error{Code::bad_argument} for a longer name, and where scopes and contexts are nested too deep.
  Scope scope(std::string_view name);

  /// A context of some ranks of this one, in the order given; called by those ranks alone, with the same list. No
  /// communication.
  /// @throws Error{Code::bad_argument}, also after some thousand nestings.
  Context sub(std::span<const Rank> ranks);
  Context sub(std::initializer_list<Rank> ranks);

  /// Blocks until everything enqueued on `stream` before has run, then throws as HostStream::synchronize and `check`
  /// do.
  void synchronize(Stream stream);
  /// Throws the oldest failure that no `check` or `synchronize` has thrown yet, if there is one.
  void check();
  /// Fails every channel of this rank with Code::aborted, here and at its peers, and so releases every parked stream. A
  /// long `why` is cut for the peers.
  void abort(std::string_view why);

 private:
  friend class Scope;
  friend struct detail::ContextAccess;
  struct Impl;
  explicit Context(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
  Impl& in() const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice
