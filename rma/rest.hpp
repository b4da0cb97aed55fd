// SPDX-License-Identifier: Apache-2.0
// How a thread waits for a word that no one wakes it for.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "base/meanwhile.hpp"
#include "base/words.hpp"

namespace sluice::rma {

/// The short rests of one wait, between two looks at a word, as those of base::spin_then_yield: a rank whose peer runs
/// gets its answer while it spins, and others get the core while it yields. After them a wait sleeps.
class Rest {
 public:
  /// `plain`: how many looks follow each other at once. For a word of this rank: it stays in the cache until a peer
  /// writes it, and a pause takes as long as that. `paused`: how many follow with pauses; 24 take about 1 us.
  explicit Rest(int plain, int paused = kPaused) : plain_(plain), spins_(plain + paused) {}
  static constexpr int kPaused = 24;

  /// Spins or yields. False: the wait has yielded for `yielding`, and should sleep.
  bool spin_or_yield(base::Clock::duration yielding) {
    if (looks_ < spins_) {
      if (looks_ >= plain_) pause((looks_ - plain_) / kPausedOfEachLength);
      ++looks_;
      return true;
    }
    static_cast<void>(base::Meanwhile::run());
    const auto now = base::Clock::now();
    if (looks_ == spins_) {
      ++looks_;
      began_ = now;
    }
    if (now - began_ >= yielding) return false;
    sched_yield();
    return true;
  }
  /// Since it began to yield.
  base::Clock::duration lasted() const { return base::Clock::now() - began_; }

 private:
  static constexpr int kPausedOfEachLength = 8;

  /// Pauses grow, up to 0.2 us: a look at a word of a peer takes its cache line away.
  static void pause(int growth) {
    for (int i = 0; i < 1 << std::min(growth, 2); ++i) base::pause();
  }

  int plain_;
  int spins_;
  int looks_ = 0;
  base::Clock::time_point began_;
};

}  // namespace sluice::rma
