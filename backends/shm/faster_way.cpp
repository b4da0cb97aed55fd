// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/faster_way.hpp"

#include <algorithm>
#include <bit>
#include <span>

namespace sluice::backends::shm {
namespace {

constexpr std::uint32_t kKnown = 4;  // times: the first copies touch memory for the first time
constexpr std::uint32_t kRow = 16;
constexpr std::uint32_t kTryEvery = 128 * kRow;

bool known(auto ways) noexcept {
  return std::all_of(ways.begin(), ways.end(),
                     [](const auto& one) { return one.count.load(std::memory_order_relaxed) >= kKnown; });
}

}  // namespace

std::size_t FasterWay::power_of(std::size_t bytes) noexcept {
  constexpr int kFirst = 11;  // 2 KiB
  const int power = static_cast<int>(std::bit_width(bytes)) - 1 - kFirst;
  return static_cast<std::size_t>(std::clamp(power, 0, static_cast<int>(kPowers) - 1));
}

/// The other ways have a row each at the beginning; then comes the fastest.
Way FasterWay::choose(std::size_t bytes, std::uint32_t turn, bool kernel) const noexcept {
  static_assert(kFirstTurn == kWays * kRow);
  const std::size_t count = possible(kernel);
  const auto ways = std::span(times_of(bytes)).first(count);
  if (!known(ways)) return static_cast<Way>(turn / kRow % count);
  const auto fastest = std::min_element(ways.begin(), ways.end(), [](const Times& one, const Times& other) {
    return one.typical.load(std::memory_order_relaxed) < other.typical.load(std::memory_order_relaxed);
  });
  const std::size_t row = turn % kTryEvery / kRow;
  const std::size_t behind = row < count ? row + 1 : count;
  return static_cast<Way>((static_cast<std::size_t>(fastest - ways.begin()) + behind) % count);
}

/// Times all ways equally often.
bool FasterWay::wants_time(std::size_t bytes, std::uint32_t turn, bool kernel) const noexcept {
  const std::size_t count = possible(kernel);
  return turn % kTryEvery < count * kRow || !known(std::span(times_of(bytes)).first(count));
}

/// Threads that get here at the same time may lose a time, which does not matter.
void FasterWay::took(Way way, std::size_t bytes, std::chrono::nanoseconds time) noexcept {
  constexpr std::chrono::nanoseconds kLeast(100), kMost = std::chrono::hours(1);
  Times& times = times_.at(power_of(bytes)).at(static_cast<std::size_t>(way));
  const std::int64_t now = std::clamp(time, kLeast, kMost).count();
  const std::int64_t before = times.typical.load(std::memory_order_relaxed);
  const std::uint32_t count = times.count.load(std::memory_order_relaxed);
  if (count < kKnown) {
    times.typical.store(count == 0 ? now : std::min(before, now), std::memory_order_relaxed);
    return times.count.store(count + 1, std::memory_order_relaxed);
  }
  // A copy that was interrupted took long, and tells little.
  times.typical.store(before + (std::min(now, 2 * before) - before) / 8, std::memory_order_relaxed);
}

}  // namespace sluice::backends::shm
