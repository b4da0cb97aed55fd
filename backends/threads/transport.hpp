// SPDX-License-Identifier: Apache-2.0
// Ranks are threads of one process: the reference backend.
#pragma once

#include "backends/transport.hpp"

namespace sluice::backends::threads {

std::unique_ptr<Transport> open(const Settings& settings);

}  // namespace sluice::backends::threads
