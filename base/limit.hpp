// SPDX-License-Identifier: Apache-2.0
// Limits of time, which count only the time in which this process could run.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/words.hpp"

namespace sluice::base {

/// How long a wait has lasted, without the time in which the process stood still: SIGSTOP, a frozen container. Whoever
/// waits looks again after `step` at the latest. A look that comes more than twice as late counts as two steps.
class Lasted {
 public:
  Clock::duration so_far() const noexcept { return so_far_; }
  Clock::time_point last_look() const noexcept { return last_look_; }
  void look(Clock::duration step) noexcept {
    const auto now = Clock::now();
    const auto passed = now - last_look_;
    so_far_ += passed / 2 > step ? 2 * step : passed;
    last_look_ = now;
  }

 private:
  Clock::time_point last_look_ = Clock::now();
  Clock::duration so_far_{};
};

/// How often to look at a wait with this limit: so often that a standstill adds at most an eighth of the limit.
inline Clock::duration step_of(Clock::duration limit) noexcept {
  constexpr Clock::duration kShortest = std::chrono::milliseconds(10);
  constexpr Clock::duration kLongest = std::chrono::seconds(1);
  return limit == Clock::duration::max() ? limit : std::clamp(limit / 16, kShortest, kLongest);
}

/// A limit on a wait, or on several, one after the other. It counts only while somebody looks.
class Limit {
 public:
  explicit Limit(Clock::duration limit) noexcept : limit_(limit), step_(step_of(limit)) {}

  /// Looks whether it has passed.
  bool over() noexcept {
    lasted_.look(step_);
    return lasted_.so_far() >= limit_;
  }
  /// When to look next.
  Clock::time_point next() const noexcept {
    const auto left = std::min(limit_ - lasted_.so_far(), step_);
    return left > Clock::time_point::max() - lasted_.last_look() ? Clock::time_point::max()
                                                                 : lasted_.last_look() + left;
  }

 private:
  Clock::duration limit_;
  Clock::duration step_;
  Lasted lasted_;
};

}  // namespace sluice::base
