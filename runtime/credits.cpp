// SPDX-License-Identifier: Apache-2.0
#include "runtime/credits.hpp"

#include <algorithm>

namespace sluice::runtime {

using base::Clock;

namespace {

bool may_wait(const ByBell& credit) noexcept {
  if (credit.landed == nullptr) return false;
  const std::uint64_t landed = credit.landed->value.load(std::memory_order_relaxed);
  return credit.posting->cumulative() && 2 * (landed - credit.posting->posted()) < credit.depth;
}

}  // namespace

bool PuttingOff::may() noexcept {
  const int left = at_once_.load(std::memory_order_relaxed);
  if (left > 0) at_once_.store(left - 1, std::memory_order_relaxed);
  return left <= 0;
}

void PuttingOff::left(Clock::duration late) noexcept {
  constexpr auto kSoon = std::chrono::microseconds(50);
  constexpr auto kMessage = std::chrono::microseconds(2);  // what one costs, about
  constexpr int kMostSaved = 500;                          // as much as the latest turn costs: 1 ms
  constexpr int kCreditsPerMessage = 16;
  if (late <= kSoon) {
    saved_ = std::min(saved_ + 1, kMostSaved);
    return;
  }
  saved_ -= static_cast<int>(std::min<Clock::rep>(late / kMessage, kMostSaved));
  if (saved_ >= 0) return;
  at_once_.store(-saved_ * kCreditsPerMessage, std::memory_order_relaxed);
  saved_ = 0;
}

bool Credits::put_off() noexcept {
  if (put_off_.load(std::memory_order_relaxed) == 0)
    put_off_at_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  put_off_.fetch_add(1);
  return putting_off_.may();
}

void Credits::begin_turn() noexcept { turn_began_ = any_wait() ? Clock::now().time_since_epoch().count() : 0; }

backends::AfterTurn Credits::post(bool may_hold, bool were_put_off) {
  constexpr auto kHeldAtMost = std::chrono::milliseconds(1);
  const Ticks held_since = held_since_.load(std::memory_order_relaxed);
  const Ticks oldest = held_since != 0 ? held_since : turn_began_;
  // A credit that was not put off is never held: no limit would end that.
  may_hold = may_hold && oldest != 0 && Clock::duration(turn_began_ - oldest) < kHeldAtMost;
  auto left = backends::AfterTurn::nothing;
  bool posts = false;
  bool holds = false;
  std::size_t kept = 0;
  for (ByBell* const credit : due_) {
    const bool pending = credit->posting->pending() != 0;
    const bool held = pending && may_hold && may_wait(*credit);
    holds |= held;
    posts |= pending && !held;
    const backends::AfterTurn after = held ? backends::AfterTurn::nothing : credit->posting->post_rung();
    left = std::max(left, after);
    credit->rung = held || after != backends::AfterTurn::nothing;
    if (credit->rung) due_[kept++] = credit;
  }
  due_.resize(kept);
  held_since_.store(holds ? oldest : 0, std::memory_order_relaxed);
  // Also if a put took the credit along.
  if (were_put_off && (posts || !holds))
    putting_off_.left(Clock::duration(turn_began_ - put_off_at_.load(std::memory_order_relaxed)));
  return left;
}

}  // namespace sluice::runtime
