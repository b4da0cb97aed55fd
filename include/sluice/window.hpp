// SPDX-License-Identifier: Apache-2.0
// Memory that peers reach at will: windows, and the targets through which peers put, get and change words.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/ops.hpp>
#include <sluice/stream.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace sluice {

namespace runtime {
class WindowCore;
}

/// A block of a window in plain bytes, which any means may carry to a peer: `Context::target` opens it there. It stays
/// valid as long as the window is open, and names that window alone: the id of a window has 128 random bits, and its
/// owner looks at it.
using WindowHandle = std::array<std::byte, 64>;

/// Memory of this rank that peers read and change without its help. A window is made by its owner alone. Movable, not
/// copyable. A handle that is made without arguments, or was moved from, is empty: all calls but `bytes` throw
/// Error{Code::misuse}.
///
/// Peers name it by rank and name, before or after it was made. The owner sees what a peer has put once it knows, by a
/// channel or an atomic, that the peer's `flush` has returned: a window by itself signals nothing to its owner. If a
/// peer dies, the window stays open for the others.
///
/// @par Threads
///   One thread at a time.
class SLUICE_EXPORT Window {
 public:
  Window() noexcept = default;
  Window(Window&&) noexcept = default;
  /// Closes the window that was here, as the destructor does.
  Window& operator=(Window&&) noexcept;
  /// Closes the window, and waits up to the connect timeout. If peers still use it then, Sluice logs that and keeps
  /// the memory; memory of a Region must stay for as long, so call `close` for it. If an exception is unwinding the
  /// stack, the targets of the peers fail with Code::peer_lost.
  ~Window();

  /// Closes the window for all peers, and blocks the host until none of them touches its memory any more, which may be
  /// freed then. Accesses of peers that are under way complete; later ones fail with Code::closed. A window of the same
  /// name may be made afterwards. Closing a closed window does nothing.
  /// @throws Error{Code::timeout}: the memory is still in use, and only `close` may be called again; {Code::misuse} if
  ///   the handle is empty.
  void close(std::optional<Timeout> timeout = kContextTimeout);

  /// Bytes of the window; 0 if the handle is empty.
  std::size_t bytes() const noexcept;
  /// A handle of the whole window, or of `bytes` bytes from `offset` on.
  /// @throws Error{Code::bad_argument} if the bytes do not lie inside the window; {Code::misuse}
  WindowHandle handle() const;
  WindowHandle handle(std::size_t offset, std::size_t bytes) const;
  /// One line for people: how many targets are open, and how the memory is reached.
  std::string describe() const;

 private:
  friend struct detail::ChannelAccess;
  explicit Window(std::shared_ptr<runtime::WindowCore> core) noexcept : core_(std::move(core)) {}
  std::shared_ptr<runtime::WindowCore> core_;
};

/// Reaches the window of a peer, or a block of it. `offset` counts from its beginning. Movable, not copyable.
///
/// @par Accesses
///   They happen in the order of a stream, as the verbs of a Sender: in program order, or on a HostStream; not on
///   GPUs' streams. The first one decides which, and in program order it waits for the window. The stream does not
///   wait for puts and gets: those that have not completed may be carried out in any order, and `flush` waits for all
///   before it. Up to 64 are under way; a further one waits for the oldest. The slice on this side is host memory. It
///   must not be changed, or read, before the access has completed, and the target keeps its memory until then. An
///   access over a network has no more bytes than one message of its provider. Accesses of several ranks to the same
///   bytes at the same time leave them undefined, unless all are atomics; so does one whose slice overlaps what it
///   reaches.
///
/// @par Atomics
///   They change a word of 8 bytes at a multiple of 8, or numbers at a multiple of their size, in one step, for all
///   targets of all ranks. If every rank maps the window, the processor carries them out; the owner may then also use
///   std::atomic_ref. Else a thread of the owner does (see `describe`), and the owner uses a target of its own; 16 are
///   under way, and the stream waits for the line to that thread, and for the oldest reply. They are not atomic with
///   puts and gets.
///
/// @par Errors
///   The errors of a Sender's verbs, and its failures. {Code::bad_argument} also if the bytes do not lie inside the
///   block, if its size is known, or an atomic is not aligned; nothing has changed. {Code::unsupported}: the slice is a
///   GPU's memory; and as a failure, an access with more bytes than one message may have. Once the owner has closed the
///   window, accesses throw {Code::closed}; one that finds it closed fails the target with that code. After the death
///   of the owner calls throw {Code::peer_lost}.
///
/// @par Threads
///   One thread at a time, which may be the thread of a HostStream. A rank may open several targets of one window.
class SLUICE_EXPORT Target : public ChannelHandle {
 public:
  /// Bytes that it reaches. Blocks the host until connected. @throws as `wait_connected`
  std::size_t bytes() const;

  /// Writes `source` to `offset`.
  void put(Stream stream, const Slice& source, std::size_t offset);
  /// Reads into `target` from `offset`.
  void get(Stream stream, const Slice& target, std::size_t offset);
  /// Changes the numbers from `offset` on by those in `numbers`, one by one: each change is atomic, the whole is not.
  void accumulate(Stream stream, Op op, Number number, const Slice& numbers, std::size_t offset);
  /// Adds `value` modulo 2^64 to the word at `offset`. `old`: 8 bytes, for the value before.
  void fetch_add(Stream stream, std::size_t offset, std::uint64_t value, const Slice& old);
  /// Stores `value`.
  void swap(Stream stream, std::size_t offset, std::uint64_t value, const Slice& old);
  /// Stores `desired` if the word is `expected`; whether it was, `old` tells.
  void compare_swap(Stream stream, std::size_t offset, std::uint64_t expected, std::uint64_t desired, const Slice& old);

  /// Later work on `stream` runs only when every access before has completed: puts are visible to the owner and to all
  /// peers, gets and old values are here. In program order that is so when the call returns.
  void flush(Stream stream);
  /// Blocks the host until every access that was enqueued has completed, as `flush` says.
  /// @throws Error{Code::timeout}: nothing has changed; {Code::misuse}; else the failure of the target.
  void drain(std::optional<Timeout> timeout = kContextTimeout);

  // Atomics in program order, for a target that is not used on a HostStream, which return the value before. After
  // Error{Code::timeout} the word may yet change: `drain` waits for that.
  std::uint64_t fetch_add(std::size_t offset, std::uint64_t value, std::optional<Timeout> timeout = kContextTimeout);
  std::uint64_t swap(std::size_t offset, std::uint64_t value, std::optional<Timeout> timeout = kContextTimeout);
  std::uint64_t compare_swap(std::size_t offset, std::uint64_t expected, std::uint64_t desired,
                             std::optional<Timeout> timeout = kContextTimeout);

 private:
  friend struct detail::ChannelAccess;
  using ChannelHandle::ChannelHandle;
};

}  // namespace sluice
