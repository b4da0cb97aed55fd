// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace apps {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The parts of a step, in their order; together they are the whole step. Waiting for slots to pack into is part of
/// `pack`, and the release of slots, for which other ranks wait, part of `unpack`.
enum class Phase { pack, put, interior, wait, unpack, boundary };
inline constexpr std::array<const char*, 6> kPhaseNames = {"pack", "put", "interior", "wait", "unpack", "boundary"};
using PhaseSeconds = std::array<double, kPhaseNames.size()>;

/// Sums the time of each phase, measured where the work runs: on the stream, with one mark after each phase.
class PhaseTimer {
 public:
  void start() { last_ = Clock::now(); }
  void mark(Phase phase) {
    const auto now = Clock::now();
    seconds_[static_cast<std::size_t>(phase)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  const PhaseSeconds& seconds() const { return seconds_; }

 private:
  Clock::time_point last_;
  PhaseSeconds seconds_{};
};

}  // namespace apps
