// SPDX-License-Identifier: Apache-2.0
// Calls that go on after an error, since peers wait for what they do next.
#pragma once

#include <sluice/error.hpp>

#include <exception>
#include <utility>

namespace sluice::rma {

/// The first error of several steps, all of which are made.
class FirstFailure {
 public:
  /// `repeats`: the caller makes a call that ran out of time again. So Error{Code::timeout} ends the steps at once.
  explicit FirstFailure(bool repeats) : repeats_(repeats) {}

  void of(auto step) {
    try {
      step();
    } catch (const Error& error) {
      if (repeats_ && error.code() == Code::timeout) throw;
      keep();
    } catch (...) {
      keep();
    }
  }
  /// @throws the first error, if there was one
  void report() {
    if (first_ != nullptr) std::rethrow_exception(std::exchange(first_, nullptr));
  }

 private:
  [[gnu::cold]] void keep() noexcept {
    if (first_ == nullptr) first_ = std::current_exception();
  }

  bool repeats_;
  std::exception_ptr first_;
};

}  // namespace sluice::rma
