// SPDX-License-Identifier: Apache-2.0
// Failures: of one end of a channel, and of all ends of a rank.
#pragma once

#include <sluice/error.hpp>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/transport.hpp"
#include "base/log.hpp"
#include "device/failure.hpp"
#include "runtime/end_info.hpp"

namespace sluice::runtime {

using device::Cause;
using device::SharedFailure;

/// The first failure of an end, which stays. It poisons the words that the end waits for. Any thread may call all of
/// it.
class EndFailure {
 public:
  /// From now on a failure poisons `word`, which ends waits for it; if the end has failed already, it does so now.
  void poisons(const backends::Signal& word);
  /// False: the end has failed before.
  bool record(SharedFailure failure) noexcept;
  /// Poisons every word that is not poisoned: repeated, since a late signal may overwrite the poison.
  void poison() const noexcept;
  /// Null: there is none.
  SharedFailure get() const;
  /// @throws the recorded failure, of which there is one
  [[noreturn, gnu::cold]] void raise() const;

 private:
  mutable std::mutex mutex_;
  SharedFailure first_;
  std::vector<backends::Signal> words_;
};

/// A failure that the engine reports to the peer of the end.
struct FailureNotice {
  std::uint64_t end = 0;  ///< its number
  Code code{};
  std::string what;
  bool tell_peer = false;
};

/// The failures of a rank's ends: those that no call has thrown yet, and those to report to peers. Any thread may call
/// all of it.
class Failures {
 public:
  /// The cause of failures of ends that an exception has left.
  const std::shared_ptr<Cause>& exceptions() const noexcept { return exceptions_; }
  /// Later failures have causes of their own, but for the loss of a peer: called when an end is opened, which may fail
  /// in the same way again.
  void forget_told();
  /// The cause of failures of this kind. The loss of a peer, and one abort, fail many ends, with the same text; and
  /// what is wrong with one end of a halo, is wrong with its others to that peer. Those have one name.
  std::shared_ptr<Cause> cause_of(Code code, const std::string& what, const Opening& of);
  /// Logs the failure, keeps it for `check`, and calls `fail_end`. A thread that finds the end failed finds the failure
  /// here; a thread that `check` has thrown it to finds the end failed.
  /// `matters`: somebody has to be told.
  template <class FailEnd>
  void record(const SharedFailure& failure, bool matters, FailEnd fail_end) {
    base::log(base::LogLevel::info, failure->error().what());
    const std::lock_guard lock(mutex_);
    unthrown_.push_back(failure);
    any_unthrown_.store(true, std::memory_order_release);
    if (matters) untold_.push_back(failure);
    fail_end();
  }
  /// Throws the oldest failure that was not thrown yet, if there is one.
  void check();
  /// The first failure of each cause that no call has thrown a failure of. Each is returned once.
  std::vector<SharedFailure> take_untold();

  void notice(FailureNotice notice) noexcept;
  std::vector<FailureNotice> take_notices();

 private:
  std::mutex mutex_;
  std::deque<SharedFailure> unthrown_;
  std::atomic<bool> any_unthrown_{false};
  std::vector<SharedFailure> untold_;  // some may have been told since
  std::map<std::pair<Code, std::string>, std::shared_ptr<Cause>> causes_;
  const std::shared_ptr<Cause> exceptions_ = std::make_shared<Cause>();
  std::vector<FailureNotice> notices_;
};

}  // namespace sluice::runtime
