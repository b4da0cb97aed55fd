// SPDX-License-Identifier: Apache-2.0
// Which of some ways of copying to a peer is the fastest one here and now.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sluice::backends::shm {

/// Into memory that both map, by the caches, or by stores that leave no line in one, since lines that travel from cache
/// to cache may take longer; or by the kernel.
enum class Way : std::uint8_t { cached, past_cache, kernel };

/// Chooses the way that took least time lately, for about as many bytes. Tries the others now and then, since the
/// processes may be moved to other cores. Any thread.
class FasterWay {
 public:
  /// The turn a channel begins with: if the fastest way is known, the channel uses it at first.
  static constexpr std::uint32_t kFirstTurn = 48;

  /// `turn`: how many times the channel has chosen. It tries a way several times in a row: the first copies find lines
  /// in the caches where the other way has left them. `kernel`: that way is possible.
  Way choose(std::size_t bytes, std::uint32_t turn, bool kernel) const noexcept;
  /// True if the put of that turn should be timed.
  bool wants_time(std::size_t bytes, std::uint32_t turn, bool kernel) const noexcept;
  /// `time`: until all was there; or that of both processes, if they worked one after the other.
  void took(Way way, std::size_t bytes, std::chrono::nanoseconds time) noexcept;

 private:
  struct Times {
    std::atomic<std::uint32_t> count{0};
    std::atomic<std::int64_t> typical{0};  // ns
  };
  static constexpr std::size_t kWays = 3;
  static constexpr std::size_t kPowers = 16;
  using OfWays = std::array<Times, kWays>;

  const OfWays& times_of(std::size_t bytes) const noexcept { return times_.at(power_of(bytes)); }
  static std::size_t power_of(std::size_t bytes) noexcept;
  static std::size_t possible(bool kernel) noexcept { return kernel ? kWays : kWays - 1; }

  std::array<OfWays, kPowers> times_;  // by the power of two of the bytes
};

}  // namespace sluice::backends::shm
