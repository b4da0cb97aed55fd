// SPDX-License-Identifier: Apache-2.0
#include "base/process.hpp"

#include <random>

namespace sluice::base {

const std::uint64_t& process_token() {
  static const std::uint64_t token = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32) | random();
  }();
  return token;
}

}  // namespace sluice::base
