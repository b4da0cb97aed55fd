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
  /// Logs the failure, and keeps it for `check`.
  void record(const Error& error);
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
