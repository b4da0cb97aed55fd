// SPDX-License-Identifier: Apache-2.0
// Gets and puts on memory that a peer offers: requests, which the owner's engine carries out.
#pragma once

#include <memory>

#include "backends/mpi/station.hpp"
#include "backends/transport.hpp"

namespace sluice::backends::mpi {

Offer offer_memory(Station& station, const device::Extent& memory);

/// @throws std::runtime_error if the peer's memory cannot be reached
std::unique_ptr<Access> open_access(Station& station, Destination& there, int depth, device::Watch& watch,
                                    const Key& key);

}  // namespace sluice::backends::mpi
