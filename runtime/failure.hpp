// SPDX-License-Identifier: Apache-2.0
// Failures: of one end of a channel, and of all ends of a rank.
#pragma once

#include <sluice/error.hpp>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/transport.hpp"
#include "base/log.hpp"

namespace sluice::runtime {

/// The first failure of an end, which stays. It poisons the words that the end waits for. Any thread may call all of
/// it.
class Failure {
 public:
  /// From now on a failure poisons `word`, which ends waits for it; if the end has failed already, it does so now.
  void poisons(const backends::Signal& word);
  /// False: the end has failed before.
  bool record(const Error& error) noexcept;
  /// Poisons every word that is not poisoned: repeated, since a late signal may overwrite the poison.
  void poison() const noexcept;
  std::optional<Error> get() const;
  /// @throws the recorded failure, of which there is one
  [[noreturn, gnu::cold]] void raise() const;

 private:
  mutable std::mutex mutex_;
  std::optional<Error> first_;
  std::vector<backends::Signal> words_;
};

/// A failure that the engine reports to the peer of the end.
struct Notice {
  std::uint64_t end = 0;  ///< its number
  Code code{};
  std::string what;
  bool tell_peer = false;
};

/// The failures of a rank's ends: those that no call has thrown yet, and those to report to peers. Any thread may call
/// all of it.
class Failures {
 public:
  /// Logs the failure, keeps it for `check`, and calls `fail_end`. A thread that finds the end failed finds the failure
  /// here; a thread that `check` has thrown it to finds the end failed.
  template <class FailEnd>
  void record(const Error& error, FailEnd fail_end) {
    base::log(base::LogLevel::info, error.what());
    const std::lock_guard lock(mutex_);
    unthrown_.push_back(error);
    unthrown_count_.store(unthrown_.size(), std::memory_order_release);
    fail_end();
  }
  /// Throws the oldest failure that was not thrown yet, if there is one.
  void check();

  void notice(Notice notice) noexcept;
  std::vector<Notice> take_notices();

 private:
  std::mutex mutex_;
  std::deque<Error> unthrown_;
  std::atomic<std::size_t> unthrown_count_{0};
  std::vector<Notice> notices_;
};

}  // namespace sluice::runtime
