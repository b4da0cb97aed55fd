// SPDX-License-Identifier: Apache-2.0
// Detects calls that cannot go on, and aborts instead of hanging.
#pragma once

#include <chrono>
#include <string>

#include "tests/emucuda/stream.hpp"

namespace emucuda {

/// Tells it on stderr, and aborts.
[[noreturn]] void report_deadlock(const std::string& what);
/// "a stream that is parked at word 0x7f..., for the value 3".
std::string where(const Stream& stream);

/// For an operation that is held up by a stream that the program has not ordered it behind: true if that lasts for
/// EMUCUDA_HELD_UP_MS, if that is set.
class HeldUp {
 public:
  explicit HeldUp(std::chrono::milliseconds limit) : limit_(limit) {}

  template <class Held>
  bool too_long(Held held_up) {
    if (limit_.count() == 0) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!held_up()) since_ = now;
    return now - since_ > limit_;
  }

 private:
  const std::chrono::milliseconds limit_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

}  // namespace emucuda
