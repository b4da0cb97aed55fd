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

Order nearest_first(std::span<const Candidate> devices, const Standpoint& from) {
  std::vector<std::size_t> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  if (devices.size() < 2) return {order, devices.size()};
  const Topology topology;
  std::vector<Rated> rated;
  for (const Candidate& device : devices) {
    const auto first = std::ranges::find(devices, device.network, &Candidate::network);
    rated.push_back({static_cast<std::size_t>(first - devices.begin()), topology.nearness(device, from)});
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return better(rated[a], rated[b]); });
  const auto end_of_run = [&](auto run) {
    return std::find_if(run, order.end(), [&](std::size_t other) { return rated[other] != rated[*run]; });
  };
  const auto near = static_cast<std::size_t>(end_of_run(order.begin()) - order.begin());
  for (auto run = order.begin(); run != order.end();) {
    const auto end = end_of_run(run);
    // Devices whose place is unknown keep their order: nothing says that they are equally good.
    if (rated[*run].nearness) std::rotate(run, run + from.node_rank % (end - run), end);
    run = end;
  }
  return {order, near};
}

}  // namespace sluice::backends::ofi
