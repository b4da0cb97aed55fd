// SPDX-License-Identifier: Apache-2.0
// Sluice's own contenders.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>
#include <utility>

namespace bench {

/// The items (see Queue) that a step enqueues: put, wait, read, release.
inline constexpr long kItemsPerStep = 4;
/// A step with --touch has two more: acquire, and the write to the source.
inline constexpr long kItemsPerComputedStep = 6;

/// A contender of Sluice.
struct Ours {
  std::unique_ptr<Contender> contender;
  std::string description;  ///< of its channels, a line each
};

/// Pairs a contender with the description that it gives of itself.
template <class Made>
Ours described(std::unique_ptr<Made> made) {
  std::string description = made->describe();
  return {std::move(made), std::move(description)};
}

/// Put, wait, release, in both directions in turn, by the host or a stream. A message is released before the answer is
/// sent, so that the credit can travel with the answer.
Ours make_ping_pong(const Workload& workload);

/// A ping-pong by a plan of a sender and a receiver, which a graph can capture. The answer is sent before the release.
Ours make_plan_ping_pong(const Workload& workload);

/// A ping-pong by a kernel on each side, which holds the channels. The answer is sent before the release.
Ours make_kernel_ping_pong(const Workload& workload);

/// Windows of messages. The receiver waits for each message and releases it, and sends an empty answer after each
/// window.
Ours make_flood(const Workload& workload);

/// A flood by the verbs of several epochs: each put has half of the slots, and in program order the receiver
/// takes all that has landed at once.
Ours make_batch_flood(const Workload& workload);

/// A flood by ranges of a segmented channel, in program order.
Ours make_segment_flood(const Workload& workload);

/// Steps in which both ranks of a pair send this many messages of a plan (sluice/unr.hpp) to the other one, in one put
/// (`packed`) or in a put for each. In program order.
inline constexpr int kMessagesOfStep = 4;
Ours make_messages(const Workload& workload, bool packed);

/// Steps of a plan with `neighbours` senders and as many receivers: start, wait, release. The neighbours are the ranks
/// at distances 1, 2, ... on a ring, around several times if there are fewer ranks. With two ranks all neighbours are
/// the other rank.
Ours make_halo(const Workload& workload);

/// Steps of a put to the next rank on a ring, and wait and release of the message of the previous rank; in program
/// order or on a host stream.
Ours make_ring(const Workload& workload);

/// The most items (see Queue) that a step of a plan with so many neighbours enqueues. If steps are replayed, the items
/// of one graph.
long items_of_plan(const Workload& workload, int neighbours);

/// The receiver of a rank's k-th halo message, and the sender of the k-th message that the rank receives.
struct Neighbour {
  sluice::Rank to;
  sluice::Rank from;
};
Neighbour neighbour(const sluice::Context& context, int k);

/// Steps of a put to the peer, computing, and a wait for the peer's put. With --stream host, a host stream puts and
/// waits while the host computes; otherwise all of it runs in program order.
Ours make_overlap(const Workload& workload);

/// The accesses of the bench `rma` to the window of the peer, in program order.
Ours make_accesses(const Workload& workload);
/// Like `make_accesses`, but words are changed by the calls that block the host and return the value before.
Ours make_blocking_accesses(const Workload& workload);

/// A start and a wait of the bench `collectives`, in program order or on a host stream.
Ours make_collective(const Workload& workload);
/// The sum of the arrays of all ranks, in each of them: between two barriers each rank sums its slice of all of them.
Ours make_sum_of_slices(const Workload& workload);
/// The sum of two arrays, each of which half of the ranks share: between two barriers the ranks at one place of both
/// sum a slice by an allreduce.
Ours make_sum_of_shared_slices(const Workload& workload);
/// Sums the arrays by an allreduce of their owners.
Ours make_sum_by_owners(const Workload& workload);
/// Inserts into a table that is spread over all ranks, by atomics on a window.
Ours make_hash_table(const Workload& workload);
/// Rounds of messages to ranks that do not expect them, by atomics and puts to a window.
Ours make_sparse_exchange(const Workload& workload);

/// The computing of such steps alone.
std::unique_ptr<Contender> make_compute(const Workload& workload);

/// Computes for about `ns` nanoseconds, and touches no memory.
void compute(double ns);

}  // namespace bench
