// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace apps {

/// One line on a terminal that says how far a run is: steps, cell updates per second, time to go. Shown by a thread of
/// its own, so that the work is neither slowed down nor made to wait for the host. Shows nothing where stderr is no
/// terminal.
class Progress {
 public:
  /// @param show  false on all ranks but one
  Progress(bool show, std::int64_t steps, double cells);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// One more step is done; called where the work runs, but for a GPU's stream: there a step counts once it is
  /// enqueued.
  void step() { done_.store(done_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

 private:
  void show(const std::stop_token& stop);

  std::int64_t steps_;
  double cells_;
  std::atomic<std::int64_t> done_{0};
  std::jthread thread_;
};

/// What ends a line of output so that it covers a progress line shown before on the same terminal.
const char* line_end();

/// The line: "  40 %  400 of 1000 steps, 1.2e+09 cells/s, 3 s to go".
std::string progress_line(std::int64_t done, std::int64_t steps, double cells, double seconds);

}  // namespace apps
