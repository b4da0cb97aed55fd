// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace apps {

/// A request of the user that cannot be fulfilled: one clear line, exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace apps
