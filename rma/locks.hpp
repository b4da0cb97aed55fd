// SPDX-License-Identifier: Apache-2.0
// Locks, by one word at rank 0 and one at each rank. Both count exclusive and shared locks. An exclusive lock is first
// counted at rank 0, which keeps `lock_all` out however many ranks are locked. Where processors change the words, that
// count begins when a rank calls `lock_all` for the first time (docs/design.md, "Epochs").
#pragma once

#include <sluice/collective_window.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rma/first_failure.hpp"
#include "rma/words.hpp"

namespace sluice::rma {

/// The locks of one rank. `call`: see epochs.hpp.
class Locks {
 public:
  using Kind = CollectiveWindow::Lock;
  static constexpr Rank kMaster = 0;  ///< counts the locks of all ranks

  bool any() const noexcept { return all_ || !held_.empty(); }
  bool all() const noexcept { return all_; }
  [[gnu::always_inline]] bool holds(Rank rank) const {
    return held_.size() == 1 ? held_.front().rank == rank : is_of(place_of(rank), rank);
  }

  /// `counted`: false: the program knows that no rank has a lock which this one excludes, so no word is changed.
  void lock(auto& call, Rank rank, Kind kind, bool counted) {
    if (all_) call.misuse("lock inside an epoch of lock_all", rank);
    const auto place = place_of(rank);
    if (is_of(place, rank)) call.misuse("locked already", rank);
    held_.insert(place, {rank, 0, counted ? kAwaited : 0});
    if (!counted) return;
    // Other threads may lock and unlock other ranks meanwhile, so its place may be another one then.
    try {
      const Held added = count(call, rank, kind);
      *of(place_of(rank)) = added;
    } catch (...) {
      held_.erase(place_of(rank));
      throw;
    }
  }

  void unlock(auto& call, Rank rank) {
    const auto held = place_of(rank);
    if (!is_of(held, rank)) call.misuse("unlock of what is not locked", rank);
    if (held->at_master == kAwaited) call.misuse("unlock while another thread awaits the lock", rank);
    FirstFailure failure(call.kRepeats);
    failure.of([&] { call.flush(rank); });
    if (held->at_rank != 0) failure.of([&] { call.subtract_later(rank, at::kLock, held->at_rank); });
    if (held->at_master != 0) failure.of([&] { call.subtract_later(kMaster, at::kAllLocks, held->at_master); });
    held_.erase(held);
    failure.report();
  }

  // The short way of a rank that holds no other lock, if each word is changed by one atomic instruction, which takes
  // long. False: nothing has changed, and `lock` or `unlock` is to be called. `its`: the words of the rank;
  // `masters()` returns those of rank 0, and is called only if the lock needs them; null: they are not mapped.
  /// A rank that sees an exclusive lock which is then taken back waits, or steps back.
  bool lock_now(const detail::MappedWords& its, auto masters, Rank rank, Kind kind) {
    if (!may_lock_now()) return false;
    const Held added = added_by(rank, kind);
    if (kind == Kind::exclusive && exclusive_ == Exclusive::unused) return false;
    const detail::MappedWords* const of_master = added.at_master == 0 ? nullptr : masters();
    if (added.at_master != 0 && of_master == nullptr) return false;
    if (!add_now(its, of_master, added)) [[unlikely]] {
      subtract_now(its, of_master, added);
      return false;
    }
    held_.push_back(added);
    return true;
  }
  /// The rank has the only lock, which is counted. Its accesses have completed.
  void unlock_now(const detail::MappedWords& its, auto masters) {
    subtract_now(its, held_.front().at_master == 0 ? nullptr : masters(), held_.front());
    held_.clear();
  }
  /// `unlock_now` may be called.
  bool is_the_one(Rank rank, auto masters) const {
    return held_.size() == 1 && held_.front().rank == rank && held_.front().at_rank != 0 &&
           (held_.front().at_master == 0 || masters() != nullptr);
  }
  // The short way of a lock that changes no word.
  bool lock_uncounted_now(Rank rank) {
    if (!may_lock_now()) return false;
    held_.push_back({rank, 0, 0});
    return true;
  }
  bool unlock_uncounted_now(Rank rank) {
    if (held_.size() != 1 || held_.front().rank != rank || held_.front().at_rank + held_.front().at_master != 0)
      return false;
    held_.clear();
    return true;
  }

  /// Steps back while it waits: exclusive locks do not.
  void lock_all(auto& call, bool counted) {
    if (counted) {
      call.reach(kMaster);
      if (!all_count_) end_uncounted(call);
      count(call, kMaster, at::kAllLocks, kShared, WhileItWaits::steps_back, is_unexcluded);
    }
    all_ = true;
    all_counted_ = counted;
  }

  void unlock_all(auto& call) {
    if (!all_) call.misuse("unlock_all without lock_all");
    FirstFailure failure(call.kRepeats);
    failure.of([&] { call.flush_all(); });
    if (all_counted_) failure.of([&] { call.subtract_later(kMaster, at::kAllLocks, kShared); });
    all_ = false;
    failure.report();
  }

 private:
  /// There is no other lock, and room for one: nothing is allocated once words have changed.
  bool may_lock_now() const { return !all_ && held_.empty() && held_.capacity() != 0; }

  /// A lock, and what it has added to words.
  struct Held {
    Rank rank;
    std::uint64_t at_rank;
    std::uint64_t at_master;  // or kAwaited
  };
  static constexpr std::uint64_t kAwaited = ~std::uint64_t{0};
  using All = std::vector<Held>;
  /// The place of the rank in the list; if it is not there, the place to insert it.
  All::const_iterator place_of(Rank rank) const { return std::ranges::lower_bound(held_, rank, {}, &Held::rank); }
  bool is_of(All::const_iterator place, Rank rank) const { return place != held_.end() && place->rank == rank; }
  All::iterator of(All::const_iterator place) { return held_.begin() + (place - held_.cbegin()); }

  enum class WhileItWaits : bool { stays, steps_back };

  /// How this rank takes exclusive locks.
  enum class Exclusive : std::uint8_t { unused, uncounted, counted };
  Held added_by(Rank rank, Kind kind) const {
    if (kind == Kind::shared) return {rank, kShared, 0};
    return {rank, kExclusive, exclusive_ == Exclusive::uncounted ? 0 : kExclusive};
  }

  /// Returns whether the lock is held.
  static bool add_now(const detail::MappedWords& its, const detail::MappedWords* masters, const Held& what) {
    if (what.at_rank == kShared) return is_unexcluded(its.add(at::kLock, kShared));
    if (what.at_master == 0) return its.add(at::kLock, kExclusive) == 0;
    const auto [all, one] = detail::MappedWords::add_to_both(*masters, at::kAllLocks, its, at::kLock, kExclusive);
    return shared_of(all) == 0 && is_free(one);
  }
  static void subtract_now(const detail::MappedWords& its, const detail::MappedWords* masters, const Held& what) {
    if (what.at_master == 0) return static_cast<void>(its.add(at::kLock, 0 - what.at_rank));
    detail::MappedWords::add_to_both(its, at::kLock, *masters, at::kAllLocks, 0 - what.at_master);
  }

  [[gnu::noinline]] static void await_free(auto& call, Rank rank, std::size_t word, auto free) {
    call.await(rank, "a lock there is held by others", [&] { return free(call.add(rank, word, 0)); });
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
  Held count(auto& call, Rank rank, Kind kind) {
    call.reach(rank);
    if (kind == Kind::shared) {
      count(call, rank, at::kLock, kShared, WhileItWaits::stays, is_unexcluded);
      return {rank, kShared, 0};
    }
    call.reach(kMaster);
    if (locks_uncounted(call, rank)) return {rank, kExclusive, 0};
    const auto unshared = [](std::uint64_t locks) { return shared_of(locks) == 0; };
    count(call, kMaster, at::kAllLocks, kExclusive, WhileItWaits::stays, unshared);
    try {
      count(call, rank, at::kLock, kExclusive, WhileItWaits::steps_back, is_free);
    } catch (...) {
      call.subtract_later(kMaster, at::kAllLocks, kExclusive);
      throw;
    }
    return {rank, kExclusive, kExclusive};
  }

  /// Takes an exclusive lock that is not counted at rank 0. False: it has to be.
  bool locks_uncounted(auto& call, Rank rank) {
    if (exclusive_ == Exclusive::unused) exclusive_ = begin_exclusive(call);
    if (exclusive_ == Exclusive::counted) return false;
    bool counting = false;
    const auto free = [&](std::uint64_t locks) {
      counting = is_counting(locks);
      return counting || is_free(locks);
    };
    count(call, rank, at::kLock, kExclusive, WhileItWaits::steps_back, free);
    if (!counting) return true;
    call.subtract_later(rank, at::kLock, kExclusive);
    exclusive_ = Exclusive::counted;
    return false;
  }
  static Exclusive begin_exclusive(auto& call) {
    if (!call.maps(kMaster)) return Exclusive::counted;
    call.add(kMaster, at::kUncounted, 1);
    return is_counting(call.add(kMaster, at::kAllLocks, 0)) ? Exclusive::counted : Exclusive::uncounted;
  }

  /// Returns once no rank holds an exclusive lock that is not counted at rank 0, and none will.
  void end_uncounted(auto& call) {
    exclusive_ = Exclusive::counted;
    if (call.maps(kMaster)) {
      say_counting(call, kMaster, at::kAllLocks);
      const bool any = call.add(kMaster, at::kUncounted, 0) != 0;
      for (Rank rank = 0; any && rank < call.size(); ++rank) {
        call.reach(rank);
        if (!is_unexcluded(say_counting(call, rank, at::kLock))) await_free(call, rank, at::kLock, is_unexcluded);
      }
    }
    all_count_ = true;
  }
  /// Returns the word.
  static std::uint64_t say_counting(auto& call, Rank rank, std::size_t word) {
    const std::uint64_t locks = call.add(rank, word, 0);
    return is_counting(locks) ? locks : call.add(rank, word, kCounting);
  }

  All held_;  // or awaited, in the order of the ranks; programs hold few at a time
  Exclusive exclusive_ = Exclusive::unused;
  bool all_count_ = false;  // all ranks count exclusive locks
  bool all_ = false;
  bool all_counted_ = true;
};

}  // namespace sluice::rma
