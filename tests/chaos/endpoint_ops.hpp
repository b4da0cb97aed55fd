// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tests/chaos/settings.hpp"
#include "tests/chaos/write.hpp"

namespace chaos {

class Endpoint;

/// Fills in the tables of calls that libfabric's inline functions use.
void set_endpoint_ops(Endpoint& endpoint);

/// 0 and the write, if the class that is played accepts it, or an error.
int check_write(const Settings& settings, const fi_msg_rma& message, std::uint64_t flags, Write& write);

}  // namespace chaos
