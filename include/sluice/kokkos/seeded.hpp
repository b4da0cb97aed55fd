// SPDX-License-Identifier: Apache-2.0
// Bugs on purpose, which tests/kokkos must find. Everywhere but in its program `seeded` is the constant false and costs
// nothing.
#pragma once

#ifdef SLUICE_KOKKOS_SEEDED_BUGS
#include <cstdlib>
#include <string_view>
#endif

namespace sluice::kokkos::detail {

#ifdef SLUICE_KOKKOS_SEEDED_BUGS
/// Whether the bug named in the environment variable SLUICE_USER_SEEDED_BUG is this one.
inline bool seeded(std::string_view bug) {
  const char* const chosen = std::getenv("SLUICE_USER_SEEDED_BUG");
  return chosen != nullptr && bug == chosen;
}
#else
constexpr bool seeded(const char*) { return false; }
#endif

}  // namespace sluice::kokkos::detail
