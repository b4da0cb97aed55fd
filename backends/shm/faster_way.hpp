// SPDX-License-Identifier: Apache-2.0
// Which of two ways of copying is the faster one here and now.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sluice::backends::shm {

enum class Way : std::uint8_t { bounce, kernel };

/// Chooses the way that took less time lately, for about as many bytes. Tries the other one now and then, since the
/// processes may be moved to other cores. Any thread.
class FasterWay {
 public:
  /// The turn a channel begins with: if the faster way is known, the channel uses it at first.
  static constexpr std::uint32_t kFirstTurn = 32;

  /// `turn`: how many times the channel has chosen. It tries a way several times in a row: the first copies find lines
  /// in the caches where the other way has left them.
  Way choose(std::size_t bytes, std::uint32_t turn) const noexcept;
  /// True if the put of that turn should be timed.
  bool wants_time(std::size_t bytes, std::uint32_t turn) const noexcept;
  /// `time`: until all was there; or that of both processes, if they worked one after the other.
  void took(Way way, std::size_t bytes, std::chrono::nanoseconds time) noexcept;

 private:
  struct Times {
    std::atomic<std::uint32_t> count{0};
    std::atomic<std::int64_t> typical{0};  // ns
  };
  using OfWays = std::array<Times, 2>;

  const OfWays& times_of(std::size_t bytes) const noexcept { return times_.at(power_of(bytes)); }
  static bool known(const OfWays& times) noexcept;
  static std::size_t power_of(std::size_t bytes) noexcept;

  static constexpr std::size_t kPowers = 16;
  std::array<OfWays, kPowers> times_;  // by the power of two of the bytes
};

}  // namespace sluice::backends::shm
