// SPDX-License-Identifier: Apache-2.0
// Fence, post and start, locks, once: CollectiveWindow and MPI's windows use them. Which epochs exclude each other, and
// the protocols of Gerstenberger, Besta, Hoefler, "Enabling Highly-Scalable Remote Memory Access Programming with MPI-3
// One Sided", SC13. How ranks are reached, and how a rank waits, is the `Call`'s.
#pragma once

#include <sluice/types.hpp>

#include <span>
#include <string>

#include "rma/first_failure.hpp"
#include "rma/locks.hpp"
#include "rma/posts.hpp"

namespace sluice::rma {

/// The epochs of one rank. A `Call` is one call of the program:
///
///  - `reach(rank)` opens what is needed for the words of a rank. `add(rank, offset, value)` adds to a word and returns
///    it as it was. `subtract_later` may return before. `maps(rank)`: true if each such change is one instruction.
///    `compare_swap(marks, value, made)` changes words from 0 to `value`, all at a time, and calls `made(mark)` for
///    those that were 0. `own(offset)`: an atomic of this rank. `size()`: how many ranks there are.
///  - `await(rank, what, ready)` waits until `ready()`, which was false just now, or until that rank is lost. `what`,
///    for people, has not happened.
///  - `flush(rank)` and `flush_all()` complete accesses. `meet()` waits for all ranks.
///  - `signal_post`, `take_post`: false unless the two ranks have a way of their own for posts, which `met_origin` and
///    `met_target` may open. `signal_complete`, `take_complete`, `take_complete_now`: the way back.
///  - `misuse(text, rank)` throws.
///  - `kRepeats`: a call that ran out of time is made again, and goes on where it was. After other errors a call does
///    what peers wait for, and then throws.
class Epochs {
 public:
  Epochs(Rank rank, int size) : posts_(rank, size) {}

  /// The kind of epoch that is open; null: none. `of_posts`: also one of `post`.
  const char* open(bool of_posts) const noexcept {
    if (posts_.started()) return "start";
    if (locks_.any()) return "lock";
    return of_posts && posts_.posted() ? "post" : nullptr;
  }
  /// `rank`: -1: any rank.
  bool locks(Rank rank) const { return rank < 0 ? locks_.any() : locks_.all() || locks_.holds(rank); }
  /// A rank is locked, or a target of `start`.
  [[gnu::always_inline]] bool accesses(Rank rank) const {
    return locks_.all() || locks_.holds(rank) || posts_.accesses(rank);
  }

  void fence(auto&& call) {
    check_outside(call, "fence", true);
    FirstFailure failure(call.kRepeats);
    failure.of([&] { call.flush_all(); });
    failure.of([&] { call.meet(); });
    failure.report();
  }

  void post(auto&& call, std::span<const Rank> origins) { posts_.post(call, origins); }
  void start(auto&& call, std::span<const Rank> targets) {
    check_outside(call, "start", false);
    posts_.start(call, targets);
  }
  void complete(auto&& call) { posts_.complete(call); }
  void wait(auto&& call) { posts_.wait(call); }
  bool test(auto&& call) { return posts_.test(call); }

  void lock(auto&& call, Rank rank, Locks::Kind kind, bool counted = true) {
    if (posts_.started()) call.misuse("lock inside an epoch of start", rank);
    locks_.lock(call, rank, kind, counted);
  }
  void unlock(auto&& call, Rank rank) { locks_.unlock(call, rank); }
  void lock_all(auto&& call, bool counted = true) {
    check_outside(call, "lock_all", false);
    locks_.lock_all(call, counted);
  }
  void unlock_all(auto&& call) { locks_.unlock_all(call); }
  /// The locks, if a short way may take one; else null.
  Locks* locks_now() noexcept { return posts_.started() ? nullptr : &locks_; }

 private:
  void check_outside(auto& call, const char* verb, bool of_posts) const {
    if (const char* const epoch = open(of_posts)) call.misuse(std::string(verb) + " inside an epoch of " + epoch);
  }

  Posts posts_;
  Locks locks_;
};

}  // namespace sluice::rma
