// SPDX-License-Identifier: Apache-2.0
// The variables of a provider. A bad value is told on stderr.
#pragma once

#include <cstdint>

namespace layer {

class Environment {
 public:
  explicit Environment(const char* provider) : provider_(provider) {}

  /// Its value, or `otherwise` where it is not set.
  std::uint64_t number(const char* name, std::uint64_t otherwise, std::uint64_t least = 0);
  /// Whether its value is `yes`, and not `no`, which it is where it is not set.
  bool is(const char* name, const char* yes, const char* no);
  /// For values that mean nothing together, or alone.
  void refuse(const char* name);

  bool good = true;  ///< nothing was refused

 private:
  const char* provider_;
};

}  // namespace layer
