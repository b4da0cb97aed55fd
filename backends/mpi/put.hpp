// SPDX-License-Identifier: Apache-2.0
// Puts that the engine sends as messages.
#pragma once

#include <memory>

#include "backends/mpi/station.hpp"
#include "backends/put.hpp"

namespace sluice::backends::mpi {

/// `stage`: MPI does not reach the source, which is copied into memory of ours first.
/// @throws std::exception for a key that makes no sense
std::unique_ptr<Put> prepare(Station& station, Destination& there, const Slots& source, device::Watch& watch,
                             const Key& key, bool stage);

}  // namespace sluice::backends::mpi
