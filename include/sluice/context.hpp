// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/channel.hpp>
#include <sluice/error.hpp>
#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/plan.hpp>
#include <sluice/stream.hpp>
#include <sluice/window.hpp>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

namespace sluice {

namespace detail {
struct ContextAccess;
}

/// A set of tags with a name, made by `Context::scope`. Channels of one scope never match those of another scope or of
/// the context, so user code, a halo and a library can use the same tags. Copies are cheap; any thread may use them.
class SLUICE_EXPORT Scope {
 public:
  /// Empty: every call throws Error{Code::misuse}.
  Scope() noexcept = default;
  /// As `sender` and `receiver` of Context, with the same errors.
  Sender sender(Rank peer, Tag tag, Slice source, ChannelOptions options = {});
  Receiver receiver(Rank peer, Tag tag, Slice target, ChannelOptions options = {});

 private:
  friend class Context;
  struct Impl;
  explicit Scope(std::shared_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
  Impl& in() const;
  std::shared_ptr<Impl> impl_;
};

/// A group of ranks. A program makes memory, channels, plans and scopes from it. Copies are handles of the same
/// context; what was made from it keeps it alive. Any thread may use it.
///
/// Every call but the four `noexcept` ones throws Error{Code::misuse} on an empty handle and in a child of fork. There
/// the scopes, channels and plans of the context throw it too, and destructors do nothing.
class SLUICE_EXPORT Context {
 public:
  /// Empty, as after a move: `rank` and `node_rank` are -1, `size` and `node_size` are 0.
  Context() noexcept = default;
  Rank rank() const noexcept;
  int size() const noexcept;
  /// The number of this rank among the ranks of the context on the same host. A container with a network of its own is
  /// a host of its own.
  int node_rank() const noexcept;
  /// How many ranks of the context are on this host.
  int node_size() const noexcept;
  /// The lowest rank of the context that is on the same host as `rank`: a number by which hosts are told apart.
  /// @throws Error{Code::bad_argument} if there is no such rank
  Rank node_of(Rank rank) const;
  /// The limit of a wait for a live peer; kForever: none. By `Options`, or the environment.
  Timeout timeout() const;
  /// The limit of `wait_connected`, `commit`, `close`, and the first use of a channel. By `Options`, or the
  /// environment.
  Timeout connect_timeout() const;

  /// Memory that is pinned, zeroed and mappable by peers. Aligned to 64 bytes; from 4096 bytes on to a page; a GPU's to
  /// 256 bytes. `device`: for Space::device, the GPU's number in the vendor's runtime; -1: the current one of the
  /// calling thread.
  /// @throws Error{Code::bad_argument} if `bytes` is 0 or there is no such device; {Code::out_of_resources}.
  Memory allocate(std::size_t bytes, Space space = Space::host, int device = -1);

  /// Pins `bytes` bytes of the program's own memory, of the host or of a GPU. The memory stays the program's: see
  /// Region. Memory that a stream allocates (cudaMallocAsync) must exist: synchronise that stream first.
  /// @throws Error{Code::bad_argument} if `memory` is null and `bytes` is not 0; {Code::out_of_resources}.
  Region region(void* memory, std::size_t bytes);

  /// Opens the sending end of a channel to `peer`, which may be this rank. Returns at once, before the peer has opened
  /// its end. The i-th opening of (peer, tag) here matches the i-th opening of the receiving end there. `source` is
  /// `options.depth` slots of equal size, 0 bytes or more each; the channel keeps it.
  /// @throws Error
  ///   - {Code::bad_argument}: there is no such peer; the depth is below 1; `source` is not `depth` equal slots;
  ///     the name has more than 4096 characters; the number of rails is negative; the driver does not accept the GPU's
  ///     stream.
  ///   - {Code::unsupported}: more than 1 rail, or a stream that this build or machine cannot drive.
  ///   - {Code::misuse}: such an end to this peer with this tag is open; the HostStream was moved from; this rank has
  ///     ended.
  ///   - {Code::out_of_resources}: memory or descriptors ran out.
  ///
  /// Later failures are those of the channel (see Sender): {Code::mismatch} if the ends disagree, {Code::unsupported}
  /// if no backend reaches the peer, {Code::peer_lost}, {Code::transport}, {Code::out_of_resources}, {Code::aborted}.
  Sender sender(Rank peer, Tag tag, Slice source, ChannelOptions options = {});
  /// Opens the receiving end of a channel from `peer`. `target` is `options.depth` slots. Else as `sender`.
  Receiver receiver(Rank peer, Tag tag, Slice target, ChannelOptions options = {});

  /// A plan without channels.
  Plan plan();

  /// Makes a window of `memory`, which peers of this context reach by this rank and `name`. No other rank takes part.
  /// The memory, of the host or of a GPU, begins at a multiple of 8 bytes. `name`: 1 to 4096 characters. `counters`:
  /// how many the window has, up to Window::kMostCounters, which begin at 0. `atomics`: whose atomics change it.
  ///
  /// Peers on this host map memory of `allocate`. For memory of a `region` they need the kernel's cross-memory copies.
  /// If it forbids those (Yama's ptrace_scope, a container's seccomp, PID namespaces), their targets fail with
  /// {Code::unsupported}: allocate the memory, or allow the copies (guide.md, "Malloc'ed memory that peers map").
  /// @throws Error{Code::bad_argument} for other memory, an empty slice, another name, or too many counters;
  ///   {Code::misuse} if a window of this name is open here, or this rank has ended; {Code::aborted} if the job has
  ///   ended; {Code::out_of_resources}.
  Window window(std::string_view name, Slice memory, std::uint32_t counters = 0,
                AtomicsOf atomics = AtomicsOf::programs);
  /// Opens the window that `peer`, which may be this rank, has made under this name, or will make. Returns at once. As
  /// for a channel, `wait_connected` and the first access wait for it.
  /// @throws Error as `sender`
  Target target(Rank peer, std::string_view name);
  /// Opens the block of a window that a WindowHandle names, whose owner is a rank of this context.
  /// @throws Error{Code::bad_argument} if the bytes are no WindowHandle, were damaged, are of another version of Sluice
  ///   or another job, or of a rank outside the context. If the owner has no such window open, or the window does not
  ///   have these bytes, the target fails with {Code::misuse}, and the owner notices nothing.
  Target target(std::span<const std::byte> handle);

  /// The scope of this name, 0 to 4096 characters. The scopes of one name are the same at all ranks of the context.
  /// @throws Error{Code::bad_argument} for a longer name, and if scopes and contexts are nested too deep.
  Scope scope(std::string_view name);

  /// A context of some ranks of this one: rank i is `ranks[i]`. Only those ranks call it, all with the same list; it
  /// does not communicate. Each call makes a new context, and the i-th calls with one list match.
  /// @throws Error{Code::bad_argument} if a rank does not exist or is named twice, if this rank is not in the list, and
  ///   after some thousand nestings.
  Context sub(std::span<const Rank> ranks);
  Context sub(std::initializer_list<Rank> ranks);

  /// Blocks until everything that was enqueued on `stream` before has run, for at most `timeout`, and then calls
  /// `check`.
  /// @throws what HostStream::synchronize and `check` throw; Error{Code::timeout}: nothing has changed;
  ///   {Code::misuse} if the stream of a GPU captures a graph, which goes on; {Code::transport} if the GPU's driver
  ///   fails; {Code::unsupported} if this build or machine cannot drive the stream.
  void synchronize(Stream stream, Timeout timeout = kForever);
  /// Throws the oldest failure of a channel of this rank that neither `check` nor `synchronize` has thrown yet, if
  /// there is one. Does not block. The channels of all contexts and scopes that were made from one another count.
  ///
  /// Failures of one cause (the loss of a peer, an abort, the stop of a stream) count as told once any call has thrown
  /// one of them. A cause that is not told when the rank ends is a line on stderr, and `run` returns 1.
  void check();
  /// Fails every channel of this rank with Code::aborted: here when the call returns, at the peers soon after, also at
  /// those that connect at this moment. That ends every wait on streams. `why` is part of the error; the peers get at
  /// most 4096 characters of it.
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
