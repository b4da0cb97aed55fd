// SPDX-License-Identifier: Apache-2.0
// The algorithms. Each appends the steps of this rank to a schedule.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/schedule.hpp"

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

/// Blocks by puts, each straight to its peer (exchange.cpp). `aside`: none may land in its place before it is waited
/// for.
void exchange(Schedule& schedule, std::span<const Part> from, std::span<const Part> to, bool aside = false);

/// A barrier of ceil(log2 p) rounds (dissemination.cpp).
void dissemination(Schedule& schedule);

// Along binomial trees, ceil(log2 p) rounds (binomial.cpp).
void binomial_broadcast(Schedule& schedule, Place data, std::size_t bytes, Rank root);
/// `to`: at the root only.
void binomial_reduce(Schedule& schedule, Place from, Place to, std::size_t bytes, Rank root);

// In rounds in which the distance doubles (doubling.cpp).
void doubling_allreduce(Schedule& schedule, Place from, Place to, std::size_t bytes);
void doubling_scan(Schedule& schedule, Place from, Place to, std::size_t bytes);

// Each rank combines a share of all numbers (shares.cpp).
/// `to`: this rank's share.
void combine_shares(Schedule& schedule, Place from, Place to, std::span<const Share> shares);
void shared_allreduce(Schedule& schedule, Place from, Place to, std::span<const Share> shares);
void shared_reduce(Schedule& schedule, Place from, Place to, std::span<const Share> shares, Rank root);
/// The root scatters shares, which all ranks give to all.
void shared_broadcast(Schedule& schedule, Place data, std::span<const Share> shares, Rank root);

}  // namespace sluice::collectives
