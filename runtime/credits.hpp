// SPDX-License-Identifier: Apache-2.0
// When credits leave that the engine posts: with or behind the next puts, and one for several.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "backends/posting.hpp"

namespace sluice::runtime {

/// A credit that leaves before the put that its rank sends next is on the way of that put, and a message more. So it is
/// put off to the next turn, which posts puts first; where such turns have come late, credits are not put off for a
/// while. While fewer than half of the slots hold what has arrived and was not credited, a credit is held a little
/// longer: the next one may tell of it.
class Credits {
 public:
  /// `landed`: the last epoch that has arrived for which these are.
  void add(backends::Posting& posting, int depth, const base::Word& landed) {
    rows_.push_back({&posting, static_cast<std::uint64_t>(depth), &landed});
  }
  void remove(const backends::Posting* posting);

  /// One was rung for: whether it may wait for the next turn. Any thread.
  bool put_off() noexcept;
  /// Something waits. Any thread.
  bool any_wait() const noexcept { return put_off_.load() != 0 || held_since_.load() != 0; }

  // For who has the engine's turn.
  /// Before puts are posted, some of which take credits along.
  void begin_turn() noexcept;
  /// Posts what does not wait; returns what is left. `may_hold`: another turn comes soon.
  backends::AfterTurn post(bool may_hold);

 private:
  struct Row {
    backends::Posting* posting = nullptr;
    std::uint64_t depth = 1;
    const base::Word* landed = nullptr;

    bool may_wait() const noexcept {
      return posting->cumulative() && 2 * (landed->value.load(std::memory_order_relaxed) - posting->posted()) < depth;
    }
  };
  using Ticks = base::Clock::rep;

  void learn(base::Clock::duration late) noexcept;

  std::vector<Row> rows_;
  // Rung for and not looked at since. Counted by read-modify-writes on both sides: either the turn of an engine that
  // is about to sleep sees the bell, or who rang sees that it is.
  std::atomic<std::uint64_t> put_off_{0};
  std::atomic<Ticks> put_off_at_{0};  // the first of them
  std::atomic<Ticks> held_since_{0};  // 0: none is held

  static constexpr int kLeastPenalty = 16;
  std::atomic<int> not_put_off_{0};  // credits that are still to leave at once
  int penalty_ = kLeastPenalty;      // how many after the next that is late
  int in_time_ = 0;                  // in a row
  Ticks turn_began_ = 0;             // 0: nothing waited then
};

}  // namespace sluice::runtime
