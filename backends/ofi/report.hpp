// SPDX-License-Identifier: Apache-2.0
// What sluice-info says of libfabric's providers.
#pragma once

#include <vector>

#include "backends/transport.hpp"

namespace sluice::backends::ofi {

std::vector<Report> reports();

}  // namespace sluice::backends::ofi
