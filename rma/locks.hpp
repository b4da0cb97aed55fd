// SPDX-License-Identifier: Apache-2.0
// Locks, by one word at rank 0 and one at each rank. Both count exclusive and shared locks. An exclusive lock is first
// counted at rank 0, which keeps `lock_all` out however many ranks are locked.
#pragma once

#include <sluice/collective_window.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rma/words.hpp"

namespace sluice::rma {

/// The locks of one rank. `call`: see epochs.hpp.
class Locks {
 public:
  using Kind = CollectiveWindow::Lock;

  bool any() const noexcept { return all_ || !held_.empty(); }
  bool all() const noexcept { return all_; }
  bool holds(Rank rank) const { return is_of(place_of(rank), rank); }

  /// `counted`: false: the program knows that no rank has a lock which this one excludes, so no word is changed.
  void lock(auto& call, Rank rank, Kind kind, bool counted) {
    if (all_) call.misuse("lock inside an epoch of lock_all", rank);
    const auto place = place_of(rank);
    if (is_of(place, rank)) call.misuse("locked already", rank);
    held_.insert(place, {rank, kind, counted});
    try {
      if (counted) count(call, rank, kind);
    } catch (...) {
      // Its place then, if any: other threads may have locked and unlocked meanwhile.
      if (const auto now = place_of(rank); is_of(now, rank)) held_.erase(now);
      throw;
    }
  }

  void unlock(auto& call, Rank rank) {
    const auto held = place_of(rank);
    if (!is_of(held, rank)) call.misuse("unlock of what is not locked", rank);
    call.flush(rank);
    const bool shared = held->kind == Kind::shared;
    if (held->counted) call.subtract_later(rank, at::kLock, shared ? kShared : kExclusive);
    if (held->counted && !shared) call.subtract_later(kMaster, at::kAllLocks, kExclusive);
    held_.erase(held);
  }

  // The short way of a rank that holds no other lock, if each word is changed by one atomic instruction, which takes
  // long. False: nothing has changed, and `lock` or `unlock` is to be called. `its`: the words of the rank; `masters`:
  // those of rank 0, which shared locks need not.
  /// A rank that sees an exclusive lock which is then taken back waits, or steps back.
  bool lock_now(const detail::MappedWords& its, const detail::MappedWords* masters, Rank rank, Kind kind) {
    const bool has_room = held_.capacity() != 0;  // nothing is allocated once words have changed
    if (all_ || !held_.empty() || !has_room) return false;
    if (kind == Kind::exclusive && masters == nullptr) return false;
    if (!add_now(its, masters, kind)) [[unlikely]] {
      subtract_now(its, masters, kind);
      return false;
    }
    held_.push_back({rank, kind, true});
    return true;
  }
  /// The rank has the only lock, which is counted. Its accesses have completed.
  void unlock_now(const detail::MappedWords& its, const detail::MappedWords* masters) {
    subtract_now(its, masters, held_.front().kind);
    held_.clear();
  }
  /// `unlock_now` may be called.
  bool is_the_one(Rank rank, const detail::MappedWords* masters) const {
    return held_.size() == 1 && held_.front().rank == rank && held_.front().counted &&
           (held_.front().kind == Kind::shared || masters != nullptr);
  }

  /// Steps back while it waits: exclusive locks do not.
  void lock_all(auto& call, bool counted) {
    if (counted) {
      call.reach(kMaster);
      const auto unexcluded = [](std::uint64_t locks) { return exclusive_of(locks) == 0; };
      count(call, kMaster, at::kAllLocks, kShared, WhileItWaits::steps_back, unexcluded);
    }
    all_ = true;
    all_counted_ = counted;
  }

  void unlock_all(auto& call) {
    if (!all_) call.misuse("unlock_all without lock_all");
    call.flush_all();
    if (all_counted_) call.subtract_later(kMaster, at::kAllLocks, kShared);
    all_ = false;
  }

 private:
  struct Held {
    Rank rank;
    Kind kind;
    bool counted;
  };
  using All = std::vector<Held>;
  /// The place of the rank in the list; if it is not there, the place to insert it.
  All::const_iterator place_of(Rank rank) const { return std::ranges::lower_bound(held_, rank, {}, &Held::rank); }
  bool is_of(All::const_iterator place, Rank rank) const { return place != held_.end() && place->rank == rank; }

  enum class WhileItWaits : bool { stays, steps_back };
  static constexpr Rank kMaster = 0;

  /// Returns whether the lock is held.
  static bool add_now(const detail::MappedWords& its, const detail::MappedWords* masters, Kind kind) {
    if (kind == Kind::shared) return exclusive_of(its.add(at::kLock, kShared)) == 0;
    const auto [all, one] = detail::MappedWords::add_to_both(*masters, at::kAllLocks, its, at::kLock, kExclusive);
    return shared_of(all) == 0 && one == 0;
  }
  static void subtract_now(const detail::MappedWords& its, const detail::MappedWords* masters, Kind kind) {
    if (kind == Kind::shared) return static_cast<void>(its.add(at::kLock, 0 - kShared));
    detail::MappedWords::add_to_both(its, at::kLock, *masters, at::kAllLocks, 0 - kExclusive);
  }

  [[gnu::noinline]] static void await_free(auto& call, Rank rank, std::size_t word, auto free) {
    call.await(rank, "the lock is held by others", [&] { return free(call.add(rank, word, 0)); });
  }

  /// Adds a lock to a word. Returns when it is held, which it is once `free(word)`. After an error it is not added, if
  /// the rank was reached before.
  static void count(auto& call, Rank rank, std::size_t word, std::uint64_t lock, WhileItWaits what, auto free) {
    for (;; await_free(call, rank, word, free)) {
      try {
        const bool held = free(call.add(rank, word, lock));
        if (held) [[likely]]
          return;
        if (what == WhileItWaits::stays) return await_free(call, rank, word, free);
      } catch (...) {
        call.subtract_later(rank, word, lock);
        throw;
      }
      call.subtract_later(rank, word, lock);
    }
  }

  /// A shared lock stays counted while it waits: exclusive locks step back, so it gets its turn. An exclusive lock
  /// stays counted at rank 0, since `lock_all` steps back.
  static void count(auto& call, Rank rank, Kind kind) {
    call.reach(rank);
    if (kind == Kind::shared) {
      const auto free = [](std::uint64_t locks) { return exclusive_of(locks) == 0; };
      return count(call, rank, at::kLock, kShared, WhileItWaits::stays, free);
    }
    call.reach(kMaster);
    const auto unshared = [](std::uint64_t locks) { return shared_of(locks) == 0; };
    count(call, kMaster, at::kAllLocks, kExclusive, WhileItWaits::stays, unshared);
    try {
      const auto free = [](std::uint64_t locks) { return locks == 0; };
      count(call, rank, at::kLock, kExclusive, WhileItWaits::steps_back, free);
    } catch (...) {
      call.subtract_later(kMaster, at::kAllLocks, kExclusive);
      throw;
    }
  }

  All held_;  // or awaited, in the order of the ranks; programs hold few at a time
  bool all_ = false;
  bool all_counted_ = true;
};

}  // namespace sluice::rma
