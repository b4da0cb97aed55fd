// SPDX-License-Identifier: Apache-2.0
// A bell that is a page of the NIC's, and the ways to ring it for a stream.
#pragma once

#include <mutex>

#include "backends/ofi/cxi.hpp"

namespace sluice::backends::ofi {

const char* name(Ringer ringer) noexcept;

/// Finds out, on counters of its own. Before anything is parked: takes up to 2 s for each that does not work. `mutex`,
/// the rail's, is held for single calls only.
Ringers choose_ringers(device::Driver& driver, const Rail& rail, std::mutex& mutex);

/// A bell for puts of the rail: of a page where counters have one that works. With the station's mutex.
std::shared_ptr<TickBell> make_bell(Station& station, const Rail& rail);

}  // namespace sluice::backends::ofi
