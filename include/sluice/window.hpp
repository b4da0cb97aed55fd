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
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

namespace runtime {
class WindowCore;
class TargetCore;
}  // namespace runtime

/// A block of a window in plain bytes, which any means may carry to a peer: `Context::target` opens it there. It stays
/// valid as long as the window is open, and names that window alone: the id of a window has 128 random bits, and its
/// owner looks at it. That a program which has it reaches the block alone is no protection against malice: it could
/// make a handle of the whole window from it.
using WindowHandle = std::array<std::byte, 64>;

/// How the atomics of a window are carried out.
enum class AtomicsBy : std::uint8_t {
  processors,  ///< of all ranks, since every rank maps the memory: std::atomic_ref of the owner is atomic with them
  owner,       ///< a thread of the owner, whose program uses a target of its own
  gpus,        ///< kernels on the streams of GPUs, of ranks that map the window, which is memory of a GPU. Atomics of
               ///< other kernels are atomic with them if their scope is the system.
  turns  ///< processors of all ranks, one rank at a time: the owner has chosen AtomicsOf::targets, and its program
         ///< uses a target of its own
};

/// Whose atomics change the words of a window. The owner chooses it for memory of the host that every rank maps; it
/// changes nothing for other memory.
enum class AtomicsOf : std::uint8_t {
  programs,  ///< those of targets and of std::atomic_ref in mapped memory: each number is changed by an instruction
  targets    ///< those of targets alone, which take a lock of the window: so an accumulate of many numbers is a loop of
             ///< vectors, and takes about a tenth of the time (`sluice-bench rma`). A program may read by
             ///< std::atomic_ref a word that accumulates do not change. Two windows of the same memory have two locks:
             ///< do not change a word by both. A wait for the lock has the limit of the context. The lock is not
             ///< fair, and there is one for all words of the window. A rank that dies gives it back, with its numbers
             ///< changed in part; one that stands still keeps it.
};

/// Notice to the owner of a window that an access by `put_tagged` or `get_tagged` has completed.
struct Notice {
  Rank source = -1;        ///< of the target, in the context of the window
  Tag tag = 0;             ///< as given there
  std::size_t offset = 0;  ///< of the bytes, in the target's block
  std::size_t bytes = 0;
};

/// For `Window::match`: of any rank; with any tag.
inline constexpr Rank kAnySource = -1;
inline constexpr Tag kAnyTag = ~Tag{0};

/// Memory of this rank, of the host or of a GPU, that peers read and change without its help. A window is made by its
/// owner alone. Movable, not copyable. A handle that is made without arguments, or was moved from, is empty: all calls
/// but `bytes` throw Error{Code::misuse}.
///
/// Peers name it by rank and name, before or after it was made. The owner sees what a peer has put once it knows, by a
/// channel or an atomic, that the peer's `flush` has returned, or once a counter tells. If a peer dies, the window
/// stays open for the others.
///
/// @par Counters
///   A counter counts accesses of peers: those by `put_notify` and the like. The owner waits for a count, in the order
///   of a stream of any kind or on the host, and then sees the bytes of the accesses that are counted. A counter tells
///   how many have completed and not which, so accesses that must be told apart need counters of their own. A count
///   begins anew by `fetch_and_zero`, which loses nothing. If an open target of a peer fails, or that peer
///   dies, what it was to count may never come: then the counters fail with the same code, which their calls throw, and
///   streams that wait for them go on. A counter is used on streams of one kind, by one thread or stream at a time.
///
/// @par Notices
///   An access with a tag gives a notice once it has completed, which `match` takes. Notices of one target are matched
///   in their order; those of several, in the order in which a call of `match` first saw them. Notices are kept until
///   they are matched: 64 notices of each target, and the stream of the target that gives one more waits until one of
///   them is matched.
///
/// @par Threads
///   One thread at a time.
class SLUICE_EXPORT Window {
 public:
  /// The most counters that a window may have.
  static constexpr std::uint32_t kMostCounters = 4000;

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
  /// How atomics in the memory that the window was made of are carried out. The answer stays the same.
  AtomicsBy atomics() const;
  /// Later work on `stream` runs only when `counter` has reached `count`. In program order the call blocks until then.
  /// @throws Error as Receiver::wait; {Code::bad_argument} if there is no such counter
  void wait(Stream stream, std::uint32_t counter, std::uint64_t count);
  /// Blocks the host until `counter` has reached `count`, for at most `timeout`; 0: looks once. False: it has not.
  /// @throws Error as Receiver::wait_for; {Code::bad_argument}
  bool wait_for(std::uint32_t counter, std::uint64_t count, Timeout timeout);
  /// The count now. @throws Error as `wait_for`
  std::uint64_t count(std::uint32_t counter);
  /// Returns the count, and lets it begin at 0: later waits count from here, those that are enqueued are not changed.
  /// @throws Error as `wait_for`
  std::uint64_t fetch_and_zero(std::uint32_t counter);

  /// Takes the oldest notice from `source` (or kAnySource) with `tag` (or kAnyTag). Blocks the host until there is one,
  /// for at most `timeout`, 0: looks once. Returns nothing if none has arrived. The bytes of the access are visible.
  /// @throws
  ///   - the failure of a target that could have given the notice: once, and each time if `source` has died. Notices of
  ///     a dead rank that no call of `match` has seen are lost.
  ///   - Error{Code::aborted}; {Code::misuse} if the window is closed.
  std::optional<Notice> match(Rank source, Tag tag, Timeout timeout);
  /// Takes up to `count` such notices, as they come. Returns how many came in time, or before a failure, which the next
  /// call throws.
  std::size_t match(Rank source, Tag tag, std::size_t count, Timeout timeout);

  /// Makes more memory part of the window: `memory` is reached at the offsets from the returned one on, behind all
  /// others. It begins at a multiple of 8 bytes. No peer takes part. The window keeps it, and memory of a Region must
  /// stay, until it is detached or the window is closed.
  /// @throws Error{Code::bad_argument} for other memory, or if no offset is left; {Code::misuse} if the window is
  /// closed.
  std::size_t attach(Slice memory);
  /// The same at offset `at`, a multiple of 8 that may be far from others: the address of the memory, say.
  /// @throws Error{Code::bad_argument} also if others have some of these offsets
  void attach(std::size_t at, Slice memory);
  /// Takes away what was attached at offset `at`, as `close` does for all: accesses of peers that are under way
  /// complete, later ones fail. Blocks the host until no peer touches the memory any more, which may be freed then.
  /// @throws Error{Code::bad_argument} if nothing was attached at `at`; {Code::timeout}: it is still in use, and
  /// `detach`
  ///   may be called again.
  void detach(std::size_t at, std::optional<Timeout> timeout = kContextTimeout);

  /// A handle of the window as it was made, or of `bytes` bytes from `offset` on.
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

/// A part of a transfer: `bytes` bytes from `here` on in the slice of this side, and from `there` on in the target.
struct Extent {
  std::size_t here = 0;
  std::size_t there = 0;
  std::size_t bytes = 0;
};

/// `count` extents of `bytes` bytes each, whose beginnings are so many bytes apart: rows of a matrix, say.
SLUICE_EXPORT std::vector<Extent> strided(std::size_t count, std::size_t bytes, std::size_t here_apart,
                                          std::size_t there_apart, std::size_t there = 0);

/// Reaches the window of a peer, or a block of it. `offset` counts from its beginning. Movable, not copyable.
///
/// @par Accesses
///   They happen in the order of a stream, as the verbs of a Sender. The first one decides of which kind, and in
///   program order it waits for the window. The stream does not wait for puts and gets: those that have not completed
///   may be carried out in any order, and `flush` waits for all before it. Up to 64 are under way; a further one waits
///   for the oldest. The slice on this side must not be changed, or read, before the access has completed, and the
///   target keeps its memory until then. Accesses of several ranks to the same bytes at the same time leave them
///   undefined, unless all are atomics; so does one whose slice overlaps what it reaches. An access may have any number
///   of bytes. Where a network takes fewer in one message, it goes in several, and counts or gives its notice once,
///   after the last of them.
///
/// @par Attached memory
///   Offsets beyond the window reach what its owner has attached (`Window::attach`), once the target is connected. A
///   put or a get may span pieces that adjoin; another access, or one with a counter or a tag, lies in one piece. The
///   first access to a piece blocks the host until the owner's engine has told where it is. A target by a handle
///   reaches none. An access where nothing is attached throws {Code::bad_argument}; once the owner has detached the
///   piece, {Code::closed} or that. One that finds it detached on its stream fails with {Code::closed}, which the next
///   access there, `flush` or `drain` throws; other pieces are used as before. Notices keep their order in a piece.
///
/// @par Counted accesses
///   If this rank does not map the counters, the owner's engine raises them, by a number that travels with the access
///   (see `describe`), or else a thread of the owner does. With the thread, for more than 4096 bytes, the stream waits
///   until a counted get has completed, and for a counted put as `put_tagged` does.
///
/// @par GPUs
///   A window may be of a GPU's memory, for peers that map it, which are on the same host, or that reach it by a
///   network that writes into it; the targets of others fail with {Code::unsupported} when they connect. Its puts
///   and gets are copies by the GPU's driver. Its atomics are for streams of GPUs alone, whose kernels carry them out;
///   operands and old values may then be in memory of the stream's GPU.
///
///   Streams of GPUs are for windows of owners on the same host. If the window or the slice is memory of a GPU, the
///   stream copies, and a kernel carries out atomics in the window. A host function of the stream does anything else,
///   also raising a counter, in the order of the kernels before and behind it. Accesses that need a thread of the owner
///   are refused. The slice of a put or a get may be memory of a GPU if this rank maps the window.
///
/// @par Atomics
///   They change a word of 8 bytes at a multiple of 8, or numbers at a multiple of their size, in one step, for all
///   targets of all ranks. If every rank maps the window, the processor carries them out; the owner may then also use
///   std::atomic_ref, unless it has chosen AtomicsOf::targets. Else a thread of the owner does (see `describe`), and
///   the owner uses a target of its own; 16 are under way, and the stream waits for the line to that thread, and for
///   the oldest reply. In memory of a GPU, kernels on streams of GPUs carry atomics out: on streams of that GPU, or of
///   a GPU that reaches its memory and has native atomics there. Atomics in another order are refused with
///   {Code::unsupported}, since no processor is atomic with GPUs. Atomics are not atomic with puts and gets.
///
/// @par Errors
///   The errors of a Sender's verbs, and its failures. {Code::bad_argument} also if the bytes do not lie inside the
///   block, if its size is known, an atomic is not aligned, or there is no such counter; nothing has changed.
///   {Code::unsupported}: a GPU's stream, or memory of a GPU, that cannot be used. Once the owner has closed the
///   window, accesses throw {Code::closed}; one that finds it closed fails the target with that code, and of one that
///   goes in several messages a part may have moved. After the death of the owner calls throw {Code::peer_lost}.
///
/// @par Threads
///   One thread at a time, which may be the thread of a HostStream. A rank may open several targets of one window.
class SLUICE_EXPORT Target : public ChannelHandle {
 public:
  /// Bytes that it reaches. Blocks the host until connected. @throws as `wait_connected`
  std::size_t bytes() const;
  /// The bytes that it reaches, as this process maps them: for code and kernels of the program that read or change them
  /// by themselves, and as memory of channels and collectives. Empty if they are not mapped here (see `describe`).
  /// Blocks the host until connected. If the window is of a GPU's memory, so is this: for kernels and copies of streams
  /// of GPUs, not for code of the host. Channels of processes land in it by way of the host, since no process gives on
  /// what it has mapped from another; a collective in place lands aside.
  ///
  /// Nothing orders such accesses, and no failure stops them: that takes channels, notices, a barrier. If processors
  /// carry out the atomics (AtomicsBy::processors), std::atomic_ref is atomic with them. The region keeps
  /// the mapping, also after this target was closed and after the owner's death. But if the owner is a thread of this
  /// process, it lasts only until the owner frees it. Do not close a channel on it later than that. The same holds for
  /// a GPU's memory that the program has allocated: drivers leave undefined what a process then finds there.
  /// @throws as `wait_connected`; Error{Code::closed}: the owner has closed the window
  Region mapped() const;

  /// True if `bytes` bytes at `offset` can be accessed now: they lie inside of the block, or of the window and what its
  /// owner has attached. Blocks the host until connected, and for each piece that was not accessed before until the
  /// owner's engine has told where it is. @throws as `wait_connected`; Error{Code::misuse}: the target is closed; an
  /// earlier failure of an access to a piece
  bool reaches(std::size_t offset, std::size_t bytes);

  /// Writes `source` to `offset`.
  void put(Stream stream, const Slice& source, std::size_t offset);
  /// Reads into `target` from `offset`.
  void get(Stream stream, const Slice& target, std::size_t offset);
  /// Writes the extents of `source`, each as an access of its own. They must not overlap at the target.
  void put(Stream stream, const Slice& source, std::span<const Extent> extents);
  /// Reads extents into `target`, which must not overlap here.
  void get(Stream stream, const Slice& target, std::span<const Extent> extents);
  /// Like `put`, and then adds 1 to the owner's `counter`: once the owner sees the count, it sees the bytes. Of other
  /// accesses the count says nothing.
  void put_notify(Stream stream, const Slice& source, std::size_t offset, std::uint32_t counter);
  /// Like `get`, and then adds 1 to the owner's `counter`: the owner may then overwrite the bytes.
  void get_notify(Stream stream, const Slice& target, std::size_t offset, std::uint32_t counter);
  /// Adds 1 to the owner's `counter`.
  void notify(Stream stream, std::uint32_t counter);
  /// Like `put`, and then gives the owner a notice: once `match` has returned it, the owner sees the bytes. Over a
  /// network that does not keep the order of writes the stream waits until the put has completed. On the stream of a
  /// GPU, the host waits while 64 notices are enqueued there that have not left.
  void put_tagged(Stream stream, const Slice& source, std::size_t offset, Tag tag);
  /// Like `get`, and then gives the owner a notice, as `put_tagged` does. Over a network the stream waits until the get
  /// has completed.
  void get_tagged(Stream stream, const Slice& target, std::size_t offset, Tag tag);
  /// Changes the numbers from `offset` on by those in `numbers`, one by one: each change is atomic, the whole is not.
  void accumulate(Stream stream, Op op, Number number, const Slice& numbers, std::size_t offset);
  /// Like `accumulate`, and then adds 1 to the owner's `counter`.
  void accumulate_notify(Stream stream, Op op, Number number, const Slice& numbers, std::size_t offset,
                         std::uint32_t counter);
  /// Adds `value` modulo 2^64 to the word at `offset`. `old`: 8 bytes, for the value before.
  void fetch_add(Stream stream, std::size_t offset, std::uint64_t value, const Slice& old);
  /// Stores `value`.
  void swap(Stream stream, std::size_t offset, std::uint64_t value, const Slice& old);
  /// Stores `desired` if the word is `expected`; whether it was, `old` tells.
  void compare_swap(Stream stream, std::size_t offset, std::uint64_t expected, std::uint64_t desired, const Slice& old);

  /// Later work on `stream` runs only when every access before has completed: puts are visible to the owner and to all
  /// peers, gets and old values are here. In program order that is so when the call returns.
  void flush(Stream stream);
  /// Later work on `stream` runs only when the slices of all accesses before may be changed and read: what was got, and
  /// old values, are here, and what was put or accumulated has left. At the owner it may not have arrived.
  void flush_local(Stream stream);
  /// Blocks the host until every access that was enqueued has completed, as `flush` says.
  /// @throws Error{Code::timeout}: nothing has changed; {Code::misuse}, also for a target that is closed; else the
  /// failure of the target.
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

namespace detail {

/// The words of a window that this process maps and changes by instructions, for protocols that do so again and again.
/// As long as the target lives.
class SLUICE_EXPORT MappedWords {
 public:
  /// There are none.
  MappedWords() = default;
  /// None, unless each atomic is one instruction. The target is connected, in program order.
  static MappedWords of(const Target& target);

  bool exist() const noexcept { return words_ != nullptr; }
  /// The words from `offset` on.
  MappedWords from(std::size_t offset) const noexcept {
    MappedWords words = *this;
    if (exist()) words.words_ += offset;
    return words;
  }
  /// Like Target::fetch_add, without a look at the offset. `offset`: of a word in the window.
  /// @throws Error the failure of the target; nothing has changed
  std::uint64_t add(std::size_t offset, std::uint64_t value) const;
  /// Adds `value` to a word of `first`, then to one of `second`. Returns both as they were.
  /// @throws Error the failure of a target; nothing has changed
  static std::pair<std::uint64_t, std::uint64_t> add_to_both(const MappedWords& first, std::size_t in_first,
                                                             const MappedWords& second, std::size_t in_second,
                                                             std::uint64_t value);

 private:
  runtime::TargetCore& target() const;

  runtime::TargetCore* target_ = nullptr;
  std::byte* words_ = nullptr;
};

}  // namespace detail

}  // namespace sluice
