// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/locality.hpp"

#include <algorithm>
#include <numeric>

namespace sluice::backends::ofi {
namespace {

struct Rated {
  std::size_t network = 0;  ///< the first device on it
  std::optional<Topology::Nearness> nearness;
  bool operator==(const Rated&) const = default;
};

bool better(const Rated& one, const Rated& other) {
  return one.network != other.network ? one.network < other.network : one.nearness > other.nearness;
}

}  // namespace

std::vector<std::size_t> nearest_first(std::span<const Candidate> devices, const Standpoint& from) {
  std::vector<std::size_t> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  if (devices.size() < 2) return order;
  const Topology topology;
  std::vector<Rated> rated;
  for (const Candidate& device : devices) {
    const auto first = std::ranges::find(devices, device.network, &Candidate::network);
    rated.push_back({static_cast<std::size_t>(first - devices.begin()), topology.nearness(device, from)});
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return better(rated[a], rated[b]); });
  for (auto run = order.begin(); run != order.end();) {
    const Rated& first = rated[*run];
    const auto end = std::find_if(run, order.end(), [&](std::size_t other) { return rated[other] != first; });
    // What is somewhere unknown is not known to be as good.
    if (first.nearness) std::rotate(run, run + from.node_rank % (end - run), end);
    run = end;
  }
  return order;
}

}  // namespace sluice::backends::ofi
