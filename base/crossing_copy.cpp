// SPDX-License-Identifier: Apache-2.0
#include "base/crossing_copy.hpp"

#include <algorithm>
#include <utility>

namespace sluice::base {
namespace {

/// By how many ns the reader takes longer to get the bytes from memory than from a cache nearby, at most (Zen 4:
/// sluice-bench collectives --touch, at 4 to 64 KiB, while a line took 60 and 200 ns).
constexpr std::int64_t reading_takes_longer(std::size_t bytes) noexcept {
  return static_cast<std::int64_t>(std::min(bytes / 8, 700 + bytes / 32));
}

/// A way by the cache must be faster than the C library's by more than 1/16 of its own time: times of one way differ by
/// about as much.
constexpr std::int64_t kMuchFaster = 16;

void copy_by(CrossingWay way, std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (way == CrossingWay::as_in_one_core) return copy_bytes(to, from, bytes);
  copy_crossing(way == CrossingWay::past_cache, to, from, bytes);
}

}  // namespace

/// Another core has read the target's lines. `rep movs` need not fetch them before it writes them, so it may be faster
/// than vectors (a Zen 5: 16 KiB in 3.3 us, and not 5.1), though not within one core's cache.
void copy_crossing(bool past_cache, std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (past_cache && crossing_copies_choose.load(std::memory_order_relaxed)) return copy_past_cache(to, from, bytes);
  const bool long_enough = bytes >= CrossingCopy::kLeast && bytes < nontemporal_min.load(std::memory_order_relaxed);
  if (long_enough && !is_little_ahead(to, from)) return static_cast<void>(std::memcpy(to, from, bytes));
  copy_bytes(to, from, bytes);
}

CrossingChoice::Turn CrossingChoice::coming(std::size_t bytes) const noexcept {
  if (turn_ >= kWays * kRow) return {.way = fastest(bytes)};
  return {.way = static_cast<CrossingWay>(turn_ / kRow), .timed = turn_ % kRow >= kRow / 2};
}

CrossingChoice::Turn CrossingChoice::next(std::size_t bytes) noexcept {
  const Turn turn = coming(bytes);
  if (turn_ >= kWays * kRow) first_period_ = false;
  turn_ = (turn_ + 1) % kPeriod;
  return turn;
}

/// In the first period the shortest time counts. Later, a copy that was interrupted took long, and tells little.
void CrossingChoice::took(CrossingWay way, std::chrono::nanoseconds time) noexcept {
  std::int64_t& typical = typical_[static_cast<std::size_t>(way)];
  const std::int64_t now = std::clamp<std::int64_t>(time.count(), 10, kUnknown);
  typical = first_period_ ? std::min(typical, now) : typical + (std::min(now, 2 * typical) - typical) / 4;
}

CrossingWay CrossingChoice::fastest(std::size_t bytes) const noexcept {
  const auto& [c_library, in_one_core, past] = typical_;
  const bool as_in_one_core = in_one_core + in_one_core / kMuchFaster < c_library;
  const std::int64_t cached = as_in_one_core ? in_one_core : c_library;
  if (cached != kUnknown && past + reading_takes_longer(bytes) < cached) return CrossingWay::past_cache;
  return as_in_one_core ? CrossingWay::as_in_one_core : CrossingWay::c_library;
}

void CrossingCopy::operator()(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  const std::chrono::nanoseconds fetching = std::exchange(fetching_, {});
  if (!crossing_copies_choose.load(std::memory_order_relaxed)) {
    past_cache_lately_.store(false, std::memory_order_relaxed);
    return copy_crossing(false, to, from, bytes);
  }
  CrossingChoice& choice = choice_of(bytes);
  const CrossingChoice::Turn turn = choice.next(bytes);
  past_cache_lately_.store(turn.way == CrossingWay::past_cache, std::memory_order_relaxed);
  if (!turn.timed) return copy_by(turn.way, to, from, bytes);
  const auto began = now_();
  copy_by(turn.way, to, from, bytes);
  choice.took(turn.way, now_() - began + fetching);
}

/// A fetch counts as part of its copy, which would have to wait for these lines.
void CrossingCopy::fetch_ahead(std::byte* to, std::size_t bytes) noexcept {
  const FetchToWrite fetch = fetch_to_write.load(std::memory_order_relaxed);
  if (!crossing_copies_choose.load(std::memory_order_relaxed)) return fetch(to, bytes);
  const CrossingChoice::Turn turn = choice_of(bytes).coming(bytes);
  if (turn.way == CrossingWay::past_cache) return;
  if (!turn.timed) return fetch(to, bytes);
  const auto began = now_();
  fetch(to, bytes);
  fetching_ = now_() - began;
}

CrossingChoice& CrossingCopy::choice_of(std::size_t bytes) noexcept {
  const int power = static_cast<int>(std::bit_width(bytes)) - 1 - kFirstPower;
  return choices_[static_cast<std::size_t>(std::clamp(power, 0, static_cast<int>(kPowers) - 1))];
}

}  // namespace sluice::base
