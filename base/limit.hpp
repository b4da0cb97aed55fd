// SPDX-License-Identifier: Apache-2.0
// Limits of time that count only while this process can run.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/words.hpp"

namespace sluice::base {

/// Time that a wait has lasted. Time in which the process stood still (SIGSTOP, a frozen container) does not count: the
/// waiting thread calls `look` at least once per `step`, and a longer pause between two calls counts as two steps.
class Lasted {
 public:
  Lasted() noexcept : Lasted(Clock::now()) {}
  explicit Lasted(Clock::time_point begin) noexcept : last_look_(begin) {}
  Clock::duration so_far() const noexcept { return so_far_; }
  Clock::time_point last_look() const noexcept { return last_look_; }
  void look(Clock::duration step) noexcept {
    const auto now = Clock::now();
    const auto passed = now - last_look_;
    so_far_ += passed / 2 > step ? 2 * step : passed;
    last_look_ = now;
  }

 private:
  Clock::time_point last_look_;
  Clock::duration so_far_{};
};

/// Time between two looks at a wait with this limit. A standstill adds at most two of them: an eighth of the limit.
inline Clock::duration step_of(Clock::duration limit) noexcept {
  constexpr Clock::duration kShortest = std::chrono::milliseconds(10);
  constexpr Clock::duration kLongest = std::chrono::seconds(1);
  return limit == Clock::duration::max() ? limit : std::clamp(limit / 16, kShortest, kLongest);
}

/// Saturates: too late a time is never.
inline Clock::time_point time_after(Clock::time_point begin, Clock::duration passes) noexcept {
  return passes > Clock::time_point::max() - begin ? Clock::time_point::max() : begin + passes;
}
inline Clock::time_point deadline_after(Clock::duration timeout) noexcept { return time_after(Clock::now(), timeout); }

/// A limit on one wait, or on several waits in a row. Only time between calls of `over` counts.
class Limit {
 public:
  /// A limit that never ends does not read the clock.
  explicit Limit(Clock::duration limit) noexcept
      : limit_(limit), step_(step_of(limit)),
        lasted_(limit == Clock::duration::max() ? Clock::time_point() : Clock::now()) {}

  /// True if the waits have lasted for the limit.
  bool over() noexcept {
    lasted_.look(step_);
    return lasted_.so_far() >= limit_;
  }
  /// Time that is left for the waits, as of the last call of `over`. A limit that never ends stays so.
  Clock::duration left() const noexcept {
    return limit_ == Clock::duration::max() ? limit_ : std::max(limit_ - lasted_.so_far(), Clock::duration::zero());
  }
  /// Time that one of several waits may take before the next call of `over`.
  Clock::duration step() const noexcept { return std::min(left(), step_); }
  /// Time of the next call of `over`.
  Clock::time_point next() const noexcept {
    return time_after(lasted_.last_look(), std::min(limit_ - lasted_.so_far(), step_));
  }

 private:
  Clock::duration limit_;
  Clock::duration step_;
  Lasted lasted_;
};

}  // namespace sluice::base
