// SPDX-License-Identifier: Apache-2.0
// Which network devices are near to a rank, by where they hang in the machine's topology. Knows nothing of libfabric.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice::backends::ofi {

struct PciAddress {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  unsigned function = 0;
};

/// A network device, as far as its place matters.
struct Candidate {
  std::string name;
  std::string network;            ///< that it is on
  std::optional<PciAddress> pci;  ///< if not known, the system may know a device of that name
};

/// From where a rank uses its devices.
struct Standpoint {
  std::vector<unsigned> cores;    ///< that it may run on, by the system's numbers
  std::optional<PciAddress> gpu;  ///< whose memory is sent
  int node_rank = 0;              ///< among the ranks of its host
};

/// The topology of this machine. Reading it takes milliseconds.
class Topology {
 public:
  /// How much of the way to the top of the machine a device shares with the GPU, and with the cores taken together.
  using Nearness = std::pair<int, int>;

  Topology();
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  /// Nothing: where the device is is not known.
  std::optional<Nearness> nearness(const Candidate& device, const Standpoint& from) const;
  /// The NUMA node that the device is at, if it is at one.
  std::optional<unsigned> numa_node(const Candidate& device) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
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
