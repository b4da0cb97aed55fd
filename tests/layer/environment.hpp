// SPDX-License-Identifier: Apache-2.0
// The environment variables of a provider. Bad values are reported on stderr.
#pragma once

#include <cstdint>

namespace layer {

class Environment {
 public:
  explicit Environment(const char* provider) : provider_(provider) {}

  /// The value of the variable, or `otherwise` where the variable is not set.
  std::uint64_t number(const char* name, std::uint64_t otherwise, std::uint64_t least = 0);
  /// True if the value is `yes`, false if it is `no` or not set. Any other value is refused.
  bool is(const char* name, const char* yes, const char* no);
  /// Reports a bad value, which may be bad only beside the value of another variable.
  void refuse(const char* name);

  bool good = true;  ///< no value was refused

 private:
  const char* provider_;
};

}  // namespace layer
