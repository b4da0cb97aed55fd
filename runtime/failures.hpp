// SPDX-License-Identifier: Apache-2.0
// The failures of a rank's channels: those that no call has thrown yet, and those that no peer has heard of.
#pragma once

#include <sluice/error.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.hpp"

namespace sluice::runtime {

/// What the peer of a failed end is told.
struct Notice {
  std::uint64_t end = 0;  ///< its number
  Code code{};
  std::string what;
  bool tell_peer = false;
};

/// Any thread may call all of it.
class Failures {
 public:
  /// Logs the failure, keeps it for `check`, and calls `fail_end`. A thread that finds the end failed finds the failure
  /// here; a thread that `check` has thrown it to finds the end failed.
  template <class FailEnd>
  void record(const Error& error, FailEnd fail_end) {
    base::log(base::LogLevel::info, error.what());
    const std::lock_guard lock(mutex_);
    untold_.push_back(error);
    untold_count_.store(untold_.size(), std::memory_order_release);
    fail_end();
  }
  /// Throws the oldest failure that was not thrown yet, if there is one.
  void check();

  void notice(Notice notice) noexcept;
  std::vector<Notice> take_notices();

 private:
  std::mutex mutex_;
  std::deque<Error> untold_;
  std::atomic<std::size_t> untold_count_{0};
  std::vector<Notice> notices_;
};

}  // namespace sluice::runtime
