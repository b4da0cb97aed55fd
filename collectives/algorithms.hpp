// SPDX-License-Identifier: Apache-2.0
// The algorithms. Each appends the steps of this rank to a schedule.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/levels.hpp"
#include "collectives/schedule.hpp"
#include "collectives/topology.hpp"

namespace sluice::collectives {

/// A block that goes from or to a peer.
struct Part {
  Rank peer = -1;
  Tag tag = 0;
  Place place = {};
  std::size_t bytes = 0;
};

/// Part r of numbers that are combined.
struct Share {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// `parts` shares of numbers of `number` bytes, as equal as whole numbers allow.
std::vector<Share> even_shares(std::size_t bytes, std::size_t parts, std::size_t number);

/// Blocks by puts, each straight to its peer (exchange.cpp). `aside`: none may land in its place before it is waited
/// for.
void exchange(Schedule& schedule, std::span<const Part> from, std::span<const Part> to, bool aside = false);

/// A barrier of rounds, in each of which a rank receives signals from `ways` others (dissemination.cpp).
void dissemination(Schedule& schedule, int ways);

// Along binomial trees, ceil(log2 p) rounds (tree.cpp).
void binomial_broadcast(Schedule& schedule, Place data, std::size_t bytes, Rank root);
/// `to`: at the root only.
void binomial_reduce(Schedule& schedule, Place from, Place to, std::size_t bytes, Rank root);

// Along trees with a fan-out for each level (tree.cpp).
void level_broadcast(Schedule& schedule, Place data, std::size_t bytes, Rank root, const Levels& levels);
/// `to`: at the root only.
void level_reduce(Schedule& schedule, Place from, Place to, std::size_t bytes, Rank root, const Levels& levels);

// In rounds in which the distance doubles (doubling.cpp).
void doubling_allreduce(Schedule& schedule, Place from, Place to, std::size_t bytes);
void doubling_scan(Schedule& schedule, Place from, Place to, std::size_t bytes);

/// From rank to rank, in their order (chain.cpp).
void chain_scan(Schedule& schedule, Place from, Place to, std::size_t bytes);

// Each rank combines a share of all numbers, in the order of the ranks (shares.cpp).
/// `to`: this rank's share.
void combine_shares(Schedule& schedule, Place from, Place to, std::span<const Share> shares);
void shared_allreduce(Schedule& schedule, Place from, Place to, std::span<const Share> shares);
/// Each rank gives its share, which is in its place in `to`, to all others. `from`: what was combined before.
void spread_shares(Schedule& schedule, Place from, Place to, std::span<const Share> shares);
void shared_reduce(Schedule& schedule, Place from, Place to, std::span<const Share> shares, Rank root);
/// The root scatters shares, which all ranks give to all.
void shared_broadcast(Schedule& schedule, Place data, std::span<const Share> shares, Rank root);

/// As many as the smallest node has ranks, so that each lane has one rank of each node.
int lanes_of(const Sets& nodes);
/// In the ranks of a node, then in lanes across nodes, then in the nodes again (lanes.cpp). `number`: its bytes.
void lanes_allreduce(Schedule& schedule, Place from, Place to, std::size_t bytes, std::size_t number,
                     const Sets& nodes);

}  // namespace sluice::collectives
