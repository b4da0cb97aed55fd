// SPDX-License-Identifier: Apache-2.0
// Sluice's own contenders.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>
#include <utility>

namespace bench {

/// The items that a step of one channel enqueues: put, wait, read, release.
inline constexpr long kItemsPerStep = 4;

struct Ours {
  std::unique_ptr<Contender> contender;
  std::string description;  ///< the descriptions of its channels, a line each
};

/// Adds the description that `made` gives of itself.
template <class Made>
Ours described(std::unique_ptr<Made> made) {
  std::string description = made->describe();
  return {std::move(made), std::move(description)};
}

/// Put, wait, release, in both directions in turn. The answer is sent before the release, so the release does not add
/// to the round trip.
Ours make_ping_pong(const Workload& workload);

/// A ping-pong by a plan of a sender and a receiver, which can be captured.
Ours make_plan_ping_pong(const Workload& workload);

/// A ping-pong by a kernel on each side, which holds the channels.
Ours make_kernel_ping_pong(const Workload& workload);

/// Windows of puts, each put waited for and released, and an empty put back after each window.
Ours make_flood(const Workload& workload);

/// A plan with `neighbours` senders and as many receivers: start, wait, release. The neighbours are the ranks at
/// distances 1, 2, ... on a ring, several times around if necessary; with two ranks all of them are the other rank.
Ours make_halo(const Workload& workload);

/// The largest number of items that a step of a plan with so many neighbours enqueues; or a graph of such steps, if it
/// is replayed.
long items_of_plan(const Workload& workload, int neighbours);

/// The ranks on the ring to which, and from which, the k-th message of a halo goes.
struct Neighbour {
  sluice::Rank to;
  sluice::Rank from;
};
Neighbour neighbour(const sluice::Context& context, int k);

/// Put to the peer, compute, wait for its put: enqueued on a host stream that works beside the computing host, or in
/// program order.
Ours make_overlap(const Workload& workload);

/// The computing alone.
std::unique_ptr<Contender> make_compute(const Workload& workload);

/// Computes for about `ns` nanoseconds without touching memory.
void compute(double ns);

}  // namespace bench
