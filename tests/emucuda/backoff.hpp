// SPDX-License-Identifier: Apache-2.0
// How everything here waits: it spins, then yields, then naps, so that 16 parked streams leave two cores to the others.
#pragma once

#include <chrono>
#include <thread>

namespace emucuda {

class Backoff {
 public:
  void pause() {
    ++tries_;
    if (tries_ < kSpins) return;
    if (tries_ < kSpins + kYields) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  static constexpr int kSpins = 50;
  static constexpr int kYields = 50;
  int tries_ = 0;
};

}  // namespace emucuda
