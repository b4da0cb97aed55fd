// SPDX-License-Identifier: Apache-2.0
// Ranks are processes of one machine: they map each other's memory where they can, else bounce or let the kernel copy.
#pragma once

#include "backends/transport.hpp"

namespace sluice::backends::shm {

std::unique_ptr<Transport> open(const Settings& settings);

}  // namespace sluice::backends::shm
