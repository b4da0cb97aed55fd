// SPDX-License-Identifier: Apache-2.0
// Memory that peers read and change: mapped where it can be, else by the kernel's cross-memory copy.
#pragma once

#include "backends/shm/keys.hpp"

namespace sluice::backends::shm {

Offer offer_memory(const device::Extent& memory, const device::Extent& counters, Sent& sent);

/// @throws std::runtime_error for memory that can be neither mapped nor copied by the kernel. `pid`: the peer's, 0 if
/// the kernel does not let this process reach into it.
std::unique_ptr<Access> open_access(pid_t pid, Mappings& mappings, device::Watch& watch, Key key);

}  // namespace sluice::backends::shm
