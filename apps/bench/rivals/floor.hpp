// SPDX-License-Identifier: Apache-2.0
// The floor: the least work with which a message can pass between two ranks. Both ranks map the same memory; the sender
// copies by memcpy and raises a counter by a release store, for which the receiver spins. No library takes part.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>

namespace bench {

std::unique_ptr<Contender> make_floor_ping_pong(const Workload& workload);
std::unique_ptr<Contender> make_floor_flood(const Workload& workload);
/// A ping-pong whose messages both ranks copy, each one half.
std::unique_ptr<Contender> make_shared_copy(const Workload& workload);
/// The accesses of the bench `rma`; nullptr for a flush, which mapped memory does not need.
std::unique_ptr<Contender> make_floor_accesses(const Workload& workload);

}  // namespace bench
