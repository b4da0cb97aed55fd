// SPDX-License-Identifier: Apache-2.0
// A window on every rank of a context, and the epochs that order accesses to it.
#pragma once

#include <sluice/export.hpp>
#include <sluice/memory.hpp>
#include <sluice/types.hpp>
#include <sluice/window.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace sluice {

class Context;

/// One window on every rank of a context, made by all ranks together, with the three ways of MPI to order accesses to
/// it (MPI 4.0, 12.5). Movable, not copyable. A handle that was moved from is empty: all calls but `rank` and `size`
/// throw Error{Code::misuse}.
///
///  - `fence` on all ranks separates the accesses before it from those after it.
///  - `post` and `wait` open a rank's own memory to a few origins; `start` and `complete` are the origins' side.
///  - `lock` and `unlock`, or `lock_all` and `unlock_all`, need no call of the owner.
///
/// All calls block the host, and the accesses that they order go through `target`. An access that a HostStream carries
/// out counts as soon as it is enqueued.
///
/// @par Memory
///   A page of words at every rank, about log2(size) channels, and two targets for each rank that is used. A rank that
///   this rank never names in `target`, `post`, `start` or `lock` costs nothing more here. Rank 0 also keeps the word
///   that `lock_all` and exclusive locks share, which all ranks that use those reach. The first `lock_all` of a rank
///   reaches all ranks, if they map each other's memory and one of them has taken exclusive locks.
///
/// @par Errors
///   {Code::misuse}: the order of calls forbids it, see each call; the window is closed; the handle is empty. Nothing
///   has changed. {Code::bad_argument}: there is no such rank, or a group names a rank twice; nothing has changed.
///   {Code::timeout}: nothing has changed, and the call may be made again, unless it says otherwise. The default limit
///   is Context::timeout, of the constructor and `close` Context::connect_timeout.
///   {Code::peer_lost}: a rank of the context died, or ended without `close`. It ends every wait of this window: at
///   once if this rank waits for that one's next step, else after some seconds, since a wait that lasts looks at every
///   rank in turn. {Code::aborted}: Context::abort. After both, only `close` and the destructor are of use.
///
/// @par Threads
///   One thread at a time.
///
/// @par Sources
///   Gerstenberger, Besta, Hoefler: "Enabling Highly-Scalable Remote Memory Access Programming with MPI-3 One Sided",
///   SC13. The fence is a dissemination barrier: Hensgen, Finkel, Manber, "Two Algorithms for Barrier
///   Synchronization", 1988.
class SLUICE_EXPORT CollectiveWindow {
 public:
  /// Collective: every rank of `context` calls it with the same name. Returns when all have. `memory` is this rank's
  /// part, as for Context::window, or empty; sizes may differ. `name`: 1 to 4000 characters, and no name of another
  /// CollectiveWindow of the context that is open. `atomics`: of this rank's part, as for Context::window.
  /// @throws Error what Context::window throws; {Code::timeout}: not every rank has called it. Then, or if another rank
  ///   has failed, this rank has no window; peers get {Code::peer_lost} or {Code::timeout}.
  CollectiveWindow(Context& context, std::string_view name, const Slice& memory,
                   AtomicsOf atomics = AtomicsOf::programs, std::optional<Timeout> timeout = kContextTimeout);
  CollectiveWindow(CollectiveWindow&&) noexcept;
  /// Closes the window that was here, as the destructor does.
  CollectiveWindow& operator=(CollectiveWindow&&) noexcept;
  /// Closes the window as `close` does, also inside an epoch, which thereby ends. An error is logged. If an exception
  /// is unwinding the stack, it waits for no rank, and waits of the peers end with {Code::peer_lost}.
  ~CollectiveWindow();

  /// Collective: completes all accesses, waits for all ranks, and closes the windows. After it returns, the memory may
  /// be freed. Closing a closed window does nothing. After the loss of a rank it does not throw that, and does not wait
  /// for all ranks.
  /// @throws Error{Code::misuse} inside an epoch of `start`, `post`, `lock` or `lock_all`, unless a call of this window
  ///   has thrown the loss of a rank; {Code::timeout}: call it again.
  void close(std::optional<Timeout> timeout = kContextTimeout);

  /// Number of this rank in the context, and of the ranks there; -1 and 0 for an empty handle.
  Rank rank() const noexcept;
  int size() const noexcept;

  /// The window of `rank`, which may be this rank. The first call for a rank opens it and blocks the host for the time
  /// of a few messages, which need no call of that rank. `Target::bytes` is the size of that rank's memory, which may
  /// be 0. The reference stays valid until the window is closed.
  /// @throws Error as Context::target and Target::wait_connected
  Target& target(Rank rank);

  /// Collective: returns when all accesses that any rank has enqueued before its own `fence` have completed, and are
  /// visible to the owners and to all ranks. Time O(log size).
  /// @throws Error{Code::misuse} inside an epoch of `start`, `post`, `lock` or `lock_all`
  void fence(std::optional<Timeout> timeout = kContextTimeout);

  /// Opens this rank's memory to `origins`, for one `start` of each. Does not wait for them, unless more than 64 ranks
  /// have posted to one that has started none of them. May be empty.
  /// @throws Error{Code::misuse} if the memory is open already: `wait` comes first
  void post(std::span<const Rank> origins, std::optional<Timeout> timeout = kContextTimeout);
  /// Returns when every one of `targets` has called `post` for this rank. Accesses to them may follow. May be empty.
  /// @throws Error{Code::misuse} if `complete` is missing, or inside an epoch of `lock` or `lock_all`
  void start(std::span<const Rank> targets, std::optional<Timeout> timeout = kContextTimeout);
  /// Ends the epoch of `start`: completes the accesses to its targets, and tells them.
  /// @throws Error{Code::misuse} without `start`
  void complete(std::optional<Timeout> timeout = kContextTimeout);
  /// Returns when all origins of `post` have called `complete`: this rank sees all that they have put.
  /// @throws Error{Code::misuse} without `post`
  void wait(std::optional<Timeout> timeout = kContextTimeout);
  /// Like `wait`, if all origins have called `complete`; else returns false, and nothing has changed. Does not block.
  /// @throws Error{Code::misuse} without `post`
  bool test();

  enum class Lock : std::uint8_t { shared, exclusive };
  /// Locks the memory of `rank`: an exclusive lock excludes all other locks of that memory, `lock_all` included; shared
  /// ones admit each other. Several ranks may be locked at a time. Waiting ranks have no order among them.
  /// @throws Error{Code::misuse} if this rank has locked it already, or inside an epoch of `start` or `lock_all`;
  ///   {Code::peer_lost} also if a rank died that holds a lock, which it keeps for ever.
  void lock(Rank rank, Lock kind, std::optional<Timeout> timeout = kContextTimeout);
  /// Completes the accesses to `rank` and gives its lock back.
  /// @throws Error{Code::misuse} if it is not locked by `lock`
  void unlock(Rank rank, std::optional<Timeout> timeout = kContextTimeout);
  /// A shared lock of all ranks, by one word however many there are. Waits while any exclusive lock is held or awaited.
  /// The first call may reach all ranks (see Memory), which takes a few messages each.
  /// @throws Error{Code::misuse} inside an epoch of `start`, `lock` or `lock_all`; {Code::peer_lost} also if the first
  ///   call reaches all ranks and cannot reach a lost one, whether that held a lock or not.
  void lock_all(std::optional<Timeout> timeout = kContextTimeout);
  /// Completes all accesses and gives the lock back.
  /// @throws Error{Code::misuse} without `lock_all`
  void unlock_all(std::optional<Timeout> timeout = kContextTimeout);

  /// Returns when all accesses to `rank`, or to all ranks, that this rank has enqueued have completed: they are visible
  /// to the owner and to all ranks, and what they read is here. In any epoch, or in none.
  void flush(Rank rank, std::optional<Timeout> timeout = kContextTimeout);
  void flush_all(std::optional<Timeout> timeout = kContextTimeout);

 private:
  class Impl;
  Impl& in() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
