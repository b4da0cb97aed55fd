// SPDX-License-Identifier: Apache-2.0
// Memory that peers read and change over the network: requests that the engine posts.
#pragma once

#include "backends/access.hpp"
#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

/// Lets the peer at `there` reach `memory`, and raise `counters`.
Offer offer_memory(Station& station, const Destination& there, const device::Extent& memory,
                   const device::Extent& counters);

/// `key`: of the peer's offer. @throws std::runtime_error if the provider cannot read.
std::unique_ptr<Access> open_access(Station& station, Destination& there, int depth, device::Watch& watch,
                                    const Key& key);

}  // namespace sluice::backends::ofi
