// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace apps {

/// One line on a terminal that shows the progress of a run: steps, cell updates per second, time left. A thread of its
/// own shows it, so that the work is not delayed and need not wait for the host. Shows nothing if stderr is not a
/// terminal.
class Progress {
 public:
  /// @param show  false on all ranks but one
  Progress(bool show, std::int64_t steps, double cells);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Counts one step as done; called where the work runs. On a GPU's stream a step counts when it is enqueued.
  void step() { done_.store(done_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

 private:
  void show(const std::stop_token& stop);

  std::int64_t steps_;
  double cells_;
  std::atomic<std::int64_t> done_{0};
  std::jthread thread_;
};

/// Returns the text that ends a line of output so that it covers an earlier progress line on the same terminal.
const char* line_end();

/// The line: "  40 %  400 of 1000 steps, 1.2e+09 cells/s, 3 s to go".
std::string progress_line(std::int64_t done, std::int64_t steps, double cells, double seconds);

}  // namespace apps
