// SPDX-License-Identifier: Apache-2.0
// Decides when the engine posts credits: with or behind the next puts, and one for several.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "backends/posting.hpp"

namespace sluice::runtime {

/// A put or a credit that the engine posts when its bell was rung.
struct ByBell {
  backends::Posting* posting = nullptr;  ///< null: the bell only wakes the engine
  bool rung = false;                     ///< the next turn looks at it
  bool behind = false;                   ///< posted behind the puts of its turn, as credits are
  std::uint64_t depth = 1;               ///< of a credit: slots
  const base::Word* landed = nullptr;    ///< of a credit: the last epoch that has arrived and will need one; else null
};

/// Weighs what late turns have cost against the messages that putting credits off has saved. A late turn after many in
/// time changes nothing; a program whose turns are all late pays for one try in thousands of credits.
class PuttingOff {
 public:
  /// Returns whether one more credit may be put off. Any thread.
  bool may() noexcept;
  /// A credit that was put off has left so late. For the thread that has the engine's turn.
  void left(base::Clock::duration late) noexcept;

 private:
  std::atomic<int> at_once_{0};  // credits that are still to leave at once
  int saved_ = 0;                // messages, less those whose time late turns have taken
};

/// A credit that leaves before the next put of its rank delays that put and costs a message. So the credit is put off
/// to the next turn, which posts puts first, unless too many turns run late (PuttingOff). While
/// fewer than half of the slots hold epochs that arrived and were not credited, a credit is held a little longer: the
/// next credit may cover it.
class Credits {
 public:
  /// Called when a credit was rung for. Returns whether it may wait for the next turn. Any thread.
  bool put_off() noexcept;
  /// True if some credit waits. Any thread.
  bool any_wait() const noexcept { return put_off_.load() != 0 || held_since_.load() != 0; }

  // For the thread that has the engine's turn.
  /// Call it before puts are posted: some take credits along.
  void begin_turn() noexcept;
  /// The bell of a credit, or of another put that leaves behind the others, was rung: it is due until it has left.
  void rung(ByBell& credit) { due_.push_back(&credit); }
  void forget(const ByBell& credit) { std::erase(due_, &credit); }
  /// Room for so many due at a time.
  void reserve(std::size_t credits) { due_.reserve(credits); }
  /// Returns whether credits were put off before this turn. Their bells are listed by now: see that they are due.
  bool end_putting_off() noexcept { return put_off_.exchange(0) != 0 && turn_began_ != 0; }
  /// Posts the due credits that do not wait. `may_hold`: another turn comes soon. `were_put_off`: as
  /// `end_putting_off` says.
  backends::AfterTurn post(bool may_hold, bool were_put_off);

 private:
  using Ticks = base::Clock::rep;

  std::vector<ByBell*> due_;
  // Credits rung for since the last turn. Both sides count by read-modify-writes: either the turn of an engine that is
  // about to sleep sees the bell, or the thread that rang sees that the engine is about to sleep.
  std::atomic<std::uint64_t> put_off_{0};
  std::atomic<Ticks> put_off_at_{0};  // the first of them
  std::atomic<Ticks> held_since_{0};  // 0: none is held

  PuttingOff putting_off_;
  Ticks turn_began_ = 0;  // 0: nothing waited then
};

}  // namespace sluice::runtime
