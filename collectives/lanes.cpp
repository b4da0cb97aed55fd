// SPDX-License-Identifier: Apache-2.0
// Allreduce in lanes: the ranks of a node combine a share each; ranks with the same place in their nodes combine their
// shares across nodes, all such lanes at once; and the ranks of a node give each other the results. So no byte crosses
// between nodes more often than it must, and all ranks of a node send. Traff, Hunold: "Decomposing MPI Collectives for
// Exploiting Multi-lane Communication", CLUSTER 2020.
#include <algorithm>
#include <vector>

#include "collectives/algorithms.hpp"

namespace sluice::collectives {
namespace {

// Groups, by the numbers of their tags.
enum : int { kBefore = 1, kLane = 2, kAfter = 3 };

std::vector<Rank> lane_of(const Sets& nodes, std::size_t place) {
  std::vector<Rank> lane;
  for (int node = 0; node < nodes.count(); ++node) lane.push_back(nodes.members(node)[place]);
  return lane;
}

}  // namespace

int lanes_of(const Sets& nodes) {
  std::size_t lanes = nodes.members(0).size();
  for (int node = 1; node < nodes.count(); ++node) lanes = std::min(lanes, nodes.members(node).size());
  return static_cast<int>(lanes);
}

/// Ranks beyond the lanes have no share: they give all their numbers to others.
void lanes_allreduce(Schedule& schedule, Place from, Place to, std::size_t bytes, std::size_t number,
                     const Sets& nodes) {
  const std::vector<Rank>& node = nodes.members(nodes.set_of(schedule.rank));
  const auto place = static_cast<std::size_t>(nodes.place_of(schedule.rank));
  const auto lanes = static_cast<std::size_t>(lanes_of(nodes));
  std::vector<Share> shares = even_shares(bytes, lanes, number);
  shares.resize(node.size());
  const Share own = shares[place];
  const Place mine = to + own.offset;
  schedule.enter(node, kBefore);
  combine_shares(schedule, from, mine, shares);
  if (place < lanes && own.bytes > 0) {
    schedule.enter(lane_of(nodes, place), kLane);
    if (own.bytes <= kLaneInRounds)
      doubling_allreduce(schedule, mine, mine, own.bytes);
    else
      shared_allreduce(schedule, mine, mine, even_shares(own.bytes, static_cast<std::size_t>(schedule.size), number));
  }
  schedule.enter(node, kAfter);
  spread_shares(schedule, from, to, shares);
  schedule.enter({}, 0);
}

}  // namespace sluice::collectives
