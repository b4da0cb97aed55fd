// SPDX-License-Identifier: Apache-2.0
// Memory that peers read and change over the network: requests that the engine posts.
#pragma once

#include "backends/access.hpp"
#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

Offer offer_memory(Station& station, const device::Extent& memory);

/// `key`: of the peer's offer. @throws std::runtime_error if the provider cannot read.
std::unique_ptr<Access> open_access(Station& station, Destination& there, int depth, device::Watch& watch,
                                    const Key& key);

}  // namespace sluice::backends::ofi
