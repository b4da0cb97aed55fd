// SPDX-License-Identifier: Apache-2.0
// Bugs on purpose. Each promise of the design has one here that must make its test fail (tests/seeded.py runs them
// all). Only the test build `sluice_seeded` has them; everywhere else `seeded` is the constant false and costs nothing.
#pragma once

#ifdef SLUICE_SEEDED_BUGS
#include <cstdlib>
#include <string_view>
#endif

namespace sluice::base {

#ifdef SLUICE_SEEDED_BUGS
/// Whether the bug named in the environment variable SLUICE_USER_SEEDED_BUG is this one.
inline bool seeded(std::string_view bug) {
  static const std::string_view chosen = [] {
    const char* value = std::getenv("SLUICE_USER_SEEDED_BUG");
    return std::string_view(value == nullptr ? "" : value);
  }();
  return bug == chosen;
}
#else
constexpr bool seeded(const char*) { return false; }
#endif

}  // namespace sluice::base
