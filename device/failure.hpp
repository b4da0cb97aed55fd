// SPDX-License-Identifier: Apache-2.0
// A failure on its way to the user: a call throws it, or a line at the end of the context says it.
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
  /// @param cuts_off  the stream that meets it stops: an exception has ended a channel under it
  explicit Failure(Error error, std::shared_ptr<Cause> cause = std::make_shared<Cause>(), bool cuts_off = false)
      : error_(std::move(error)), cause_(std::move(cause)), cuts_off_(cuts_off) {}

  const Error& error() const noexcept { return error_; }
  const std::shared_ptr<Cause>& cause() const noexcept { return cause_; }
  bool cuts_off() const noexcept { return cuts_off_; }
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
  const bool cuts_off_;
  std::atomic<bool> taken_{false};
};
using SharedFailure = std::shared_ptr<Failure>;

}  // namespace sluice::device
