// SPDX-License-Identifier: Apache-2.0
// A failure as it goes to whoever must hear of it: a call throws it, or a line at the end of the context says it.
#pragma once

#include <sluice/error.hpp>

#include <atomic>
#include <memory>
#include <utility>

namespace sluice::device {

/// What made one or several channels fail: the loss of a peer, an abort, the stop of a stream.
struct Cause {
  std::atomic<bool> told{false};  ///< a call has thrown one of its failures
};

/// One failure. Any thread.
class Failure {
 public:
  explicit Failure(Error error, std::shared_ptr<Cause> cause = std::make_shared<Cause>())
      : error_(std::move(error)), cause_(std::move(cause)) {}

  const Error& error() const noexcept { return error_; }
  const std::shared_ptr<Cause>& cause() const noexcept { return cause_; }
  /// `check` and `synchronize` throw it once: true for the first that asks.
  bool take() noexcept { return !taken_.exchange(true); }
  void tell() const noexcept { cause_->told.store(true); }
  /// @throws the error
  [[noreturn, gnu::cold]] void raise() const {
    tell();
    throw Error(error_);
  }

 private:
  const Error error_;
  const std::shared_ptr<Cause> cause_;
  std::atomic<bool> taken_{false};
};
using SharedFailure = std::shared_ptr<Failure>;

}  // namespace sluice::device
