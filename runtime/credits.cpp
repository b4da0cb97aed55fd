// SPDX-License-Identifier: Apache-2.0
#include "runtime/credits.hpp"

#include <algorithm>

namespace sluice::runtime {

using base::Clock;

void Credits::remove(const backends::Posting* posting) {
  std::erase_if(rows_, [&](const Row& row) { return row.posting == posting; });
}

bool Credits::put_off() noexcept {
  if (put_off_.load(std::memory_order_relaxed) == 0)
    put_off_at_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  put_off_.fetch_add(1);
  const int left = not_put_off_.load(std::memory_order_relaxed);
  if (left > 0) not_put_off_.store(left - 1, std::memory_order_relaxed);
  return left <= 0;
}

void Credits::begin_turn() noexcept { turn_began_ = any_wait() ? Clock::now().time_since_epoch().count() : 0; }

backends::AfterTurn Credits::post(bool may_hold) {
  constexpr auto kHeldAtMost = std::chrono::milliseconds(1);
  const bool rung = put_off_.exchange(0) != 0 && turn_began_ != 0;
  const Ticks held_since = held_since_.load(std::memory_order_relaxed);
  const Ticks oldest = held_since != 0 ? held_since : turn_began_;
  // A credit that was not put off is never held: no limit would end that.
  may_hold = may_hold && oldest != 0 && Clock::duration(turn_began_ - oldest) < kHeldAtMost;
  auto left = backends::AfterTurn::nothing;
  bool posts = false;
  bool holds = false;
  for (const Row& row : rows_) {
    const bool pending = row.posting->pending() != 0;
    if (pending && may_hold && row.may_wait()) {
      holds = true;
    } else {
      posts |= pending;
      left = std::max(left, row.posting->post_rung());
    }
  }
  held_since_.store(holds ? oldest : 0, std::memory_order_relaxed);
  // Also if a put took the credit along.
  if (rung && (posts || !holds)) learn(Clock::duration(turn_began_ - put_off_at_.load(std::memory_order_relaxed)));
  return left;
}

void Credits::learn(Clock::duration late) noexcept {
  constexpr auto kSoon = std::chrono::microseconds(50);
  constexpr int kMostPenalty = 1 << 16;
  if (late > kSoon) {
    not_put_off_.store(penalty_, std::memory_order_relaxed);
    penalty_ = std::min(2 * penalty_, kMostPenalty);
    in_time_ = 0;
  } else if (not_put_off_.load(std::memory_order_relaxed) == 0 && ++in_time_ >= kLeastPenalty) {
    penalty_ = kLeastPenalty;
    in_time_ = 0;
  }
}

}  // namespace sluice::runtime
