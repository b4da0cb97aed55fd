// SPDX-License-Identifier: Apache-2.0
// Kokkos for tests that share a program.
#pragma once

#include "apps/common/space.hpp"

namespace apps {

/// A new instance of Serial. The first call initialises Kokkos until the program ends.
inline Kokkos::Serial serial() {
  static const Kokkos::ScopeGuard kokkos(kokkos_settings());
  return Kokkos::Serial(Kokkos::NewInstance{});
}

}  // namespace apps
