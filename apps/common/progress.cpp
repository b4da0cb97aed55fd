// SPDX-License-Identifier: Apache-2.0
#include "apps/common/progress.hpp"

#include "apps/common/phases.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>

namespace apps {

std::string progress_line(std::int64_t done, std::int64_t steps, double cells, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const double left = rate > 0 ? static_cast<double>(steps - done) / rate : 0;
  return fmt::format("{:3d} %  {} of {} steps, {:.2g} cells/s, {:.0f} s to go", steps > 0 ? 100 * done / steps : 100,
                     done, steps, rate * cells, left);
}

const char* line_end() {
  static const bool shown = isatty(STDERR_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  return shown ? "\x1b[K\n" : "\n";
}

Progress::Progress(bool show, std::int64_t steps, double cells) : steps_(steps), cells_(cells) {
  if (show && isatty(STDERR_FILENO) == 1)
    thread_ = std::jthread([this](const std::stop_token& stop) { this->show(stop); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  fmt::print(stderr, "\r{:78}\r", "");
}

void Progress::show(const std::stop_token& stop) {
  const auto start = Clock::now();
  std::mutex mutex;
  std::condition_variable_any sleeping;
  std::unique_lock lock(mutex);
  while (!sleeping.wait_for(lock, stop, std::chrono::milliseconds(500), [&] { return stop.stop_requested(); })) {
    fmt::print(stderr, "\r{:78}\r",
               progress_line(done_.load(std::memory_order_relaxed), steps_, cells_, seconds_since(start)));
    std::fflush(stderr);
  }
}

}  // namespace apps
