// SPDX-License-Identifier: Apache-2.0
// The receiving end of a peer's puts: the engine receives them into the target, and raises the signal.
#pragma once

#include <cstdint>

#include "backends/mpi/station.hpp"

namespace sluice::backends::mpi {

/// A landing as the peer gets to know it.
struct Place {
  std::uint64_t number = 0;
  std::uint64_t slot_bytes = 0;
  std::int32_t depth = 1;
};

/// `stage`: puts land in memory of ours, and `take` copies them.
Landed land(Station& station, const Slots& target, const Signal& signal, bool stage);

}  // namespace sluice::backends::mpi
