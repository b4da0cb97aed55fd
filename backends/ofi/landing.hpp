// SPDX-License-Identifier: Apache-2.0
// Landings of puts that the receiver learns of by a number or by a word. Slots whose arrivals are counted are in
// by_counter.hpp.
#pragma once

#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

/// Slots that the provider does not reach are staged: puts land in memory of ours, and `take` copies them.
Landed land_uncounted(Station& station, const Destination& there, const Endpoints& endpoints, const Slots& target,
                      std::span<const Signal> signals);

}  // namespace sluice::backends::ofi
