// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/faster_way.hpp"

#include <algorithm>
#include <bit>

namespace sluice::backends::shm {
namespace {

constexpr std::uint32_t kKnown = 4;  // times: the first copies touch memory for the first time
constexpr std::uint32_t kRow = 16;
constexpr std::uint32_t kTryEvery = 64 * kRow;
static_assert(FasterWay::kFirstTurn == 2 * kRow);

}  // namespace

std::size_t FasterWay::power_of(std::size_t bytes) noexcept {
  constexpr int kFirst = 12;  // 4 KiB
  const int power = static_cast<int>(std::bit_width(bytes)) - 1 - kFirst;
  return static_cast<std::size_t>(std::clamp(power, 0, static_cast<int>(kPowers) - 1));
}

bool FasterWay::known(const OfWays& times) noexcept {
  return std::all_of(times.begin(), times.end(),
                     [](const Times& one) { return one.count.load(std::memory_order_relaxed) >= kKnown; });
}

Way FasterWay::choose(std::size_t bytes, std::uint32_t turn) const noexcept {
  const OfWays& times = times_of(bytes);
  const auto& [bounce, kernel] = times;
  const bool all_known = known(times);
  const bool kernel_is_faster =
      all_known && kernel.typical.load(std::memory_order_relaxed) < bounce.typical.load(std::memory_order_relaxed);
  const bool other = all_known ? turn % kTryEvery < kRow : turn % (2 * kRow) >= kRow;
  return kernel_is_faster != other ? Way::kernel : Way::bounce;
}

/// Times both ways equally often.
bool FasterWay::wants_time(std::size_t bytes, std::uint32_t turn) const noexcept {
  return turn % kTryEvery < 2 * kRow || !known(times_of(bytes));
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
