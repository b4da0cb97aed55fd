// SPDX-License-Identifier: Apache-2.0
// The floor: memory that both sides map, memcpy and a release store; an acquiring load that spins. It uses no library.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>

namespace bench {

std::unique_ptr<Contender> make_floor_ping_pong(const Workload& workload);

/// A ring of `depth` slots: one counter rises with each message, and a counter of credits with every half of the ring.
std::unique_ptr<Contender> make_floor_flood(const Workload& workload);

}  // namespace bench
