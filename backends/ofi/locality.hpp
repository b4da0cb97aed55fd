// SPDX-License-Identifier: Apache-2.0
// Which network devices are near to a rank, by where they hang in the machine's topology. Knows nothing of libfabric.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

struct hwloc_topology;

namespace sluice::backends::ofi {

/// A network device, as far as its place matters.
struct Candidate {
  std::string name;
  std::string network;  ///< that it is on
  std::string pci;      ///< "0000:c5:00.0"; empty: not known, but the system may know a device of that name
};

/// From where a rank uses its devices.
struct Standpoint {
  std::vector<unsigned> cores;  ///< that it may run on, by the system's numbers
  std::string gpu;              ///< PCI address of the one whose memory is sent; empty: there is none
  int node_rank = 0;            ///< among the ranks of its host
};

/// The topology of this machine. Reading it takes milliseconds.
class Topology {
 public:
  /// How much of the way to the top of the machine a device shares with the GPU, and with the cores taken together.
  using Nearness = std::pair<int, int>;

  Topology();

  /// Nothing: where the device is is not known.
  std::optional<Nearness> nearness(const Candidate& device, const Standpoint& from) const;
  /// The NUMA node that the device is at, if it is at one.
  std::optional<unsigned> numa_node(const Candidate& device) const;

 private:
  std::shared_ptr<hwloc_topology> tree_;  // null: not known
};

struct Order {
  std::vector<std::size_t> devices;
  std::size_t near = 0;  ///< the first so many are as near as the first
};

/// The order in which a rank uses `devices`, which are given as libfabric prefers them: what is on the network of the
/// first before other networks, so that peers agree on it; there the nearest first. Ranks of a host take turns at being
/// first to use what is equally near.
Order nearest_first(std::span<const Candidate> devices, const Standpoint& from);

}  // namespace sluice::backends::ofi
