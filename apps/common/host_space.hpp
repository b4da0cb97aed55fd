// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdlib>
#include <type_traits>

namespace apps {

/// Starts Kokkos once for all ranks of this process, with one thread unless OMP_NUM_THREADS or KOKKOS_NUM_THREADS says
/// otherwise: ranks are what fills the cores.
inline Kokkos::InitializationSettings kokkos_settings() {
  Kokkos::InitializationSettings settings;
  settings.set_disable_warnings(true);  // about thread placement, which is the launcher's business
  if (std::getenv("OMP_NUM_THREADS") == nullptr && std::getenv("KOKKOS_NUM_THREADS") == nullptr)
    settings.set_num_threads(1);
  return settings;
}

/// Calls `body` with an instance of the execution space to use: of its own, since ranks that are threads must not take
/// turns on one. A single thread gets Serial, which dispatches a kernel without a fork and join.
template <class Body>
auto with_host_space(const Body& body) {
  using Default = Kokkos::DefaultHostExecutionSpace;
  if constexpr (!std::is_same_v<Default, Kokkos::Serial>) {
    const int threads = Default().concurrency();
    if (threads > 1) {
      if constexpr (std::is_constructible_v<Default, int>) return body(Default(threads));
      return body(Default());
    }
  }
  return body(Kokkos::Serial(Kokkos::NewInstance{}));
}

}  // namespace apps
