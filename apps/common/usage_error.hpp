// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace apps {

/// Something that the user asked for cannot be done: one clear line, exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace apps
