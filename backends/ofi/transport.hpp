// SPDX-License-Identifier: Apache-2.0
// Ranks reach each other through libfabric: one backend for each of its providers that can carry channels.
#pragma once

#include "backends/transport.hpp"

namespace sluice::backends::ofi {

/// A row for each provider, `ofi:<provider>`, best first.
std::vector<Backend> rows();

/// The providers as sluice-info shows them.
std::vector<Report> reports();

}  // namespace sluice::backends::ofi
