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

  /// Adds a lock to a word. Returns when it is held, which it is once `free(word)`. After an error it is not added, if
  /// the rank was reached before.
  static void count(auto& call, Rank rank, std::size_t word, std::uint64_t lock, WhileItWaits what, auto free) {
    const auto await_free = [&] {
      call.await(rank, "the lock is held by others", [&] { return free(call.add(rank, word, 0)); });
    };
    for (;; await_free()) {
      try {
        const bool held = free(call.add(rank, word, lock));
        if (held) return;
        if (what == WhileItWaits::stays) return await_free();
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
