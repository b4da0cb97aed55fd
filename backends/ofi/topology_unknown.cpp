// SPDX-License-Identifier: Apache-2.0
// Without hwloc nothing is known of where devices are.
#include "backends/ofi/locality.hpp"

namespace sluice::backends::ofi {

Topology::Topology() = default;

std::optional<Topology::Nearness> Topology::nearness(const Candidate&, const Standpoint&) const { return std::nullopt; }

std::optional<unsigned> Topology::numa_node(const Candidate&) const { return std::nullopt; }

}  // namespace sluice::backends::ofi
