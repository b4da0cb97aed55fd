// SPDX-License-Identifier: Apache-2.0
// The receiver learns of a put by counters (Notice::counter). Each slot has a counter that is bound to its memory:
// epoch n has arrived once its slot was written as often as that takes. One counter for all slots would count the
// epochs behind one that has failed (test: FailedWrites.are_never_believed*).
#pragma once

#include "backends/ofi/triggered.hpp"

namespace sluice::backends::ofi {

/// How many epochs of a put that the NIC fires may be armed at a time. Each takes one trigger entry.
int entries_for(const Place& place) noexcept;

/// A put that the NIC fires. Deferred work is armed ahead; a ring of the bell fires it.
std::unique_ptr<Put> fire_by_nic(Station& station, Destination& there, const Slots& source, device::Watch& watch,
                                 const Target& place);
/// Raises `done` to what has completed. With the station's mutex. Returns whether it must be called again soon.
bool look(TriggeredPut& put);

/// With more slots than this they would take too many of the NIC's counters.
inline constexpr int kMostCounted = 64;
/// Slots whose arrivals are counted.
Landed land_counted(Station& station, const Destination& there, const Endpoints& endpoints, const Slots& target,
                    std::span<const Signal> signals);
/// Raises the signals to the epochs that have arrived. With the station's mutex.
void look(CountedLanding& landing);

}  // namespace sluice::backends::ofi
