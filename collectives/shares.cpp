// SPDX-License-Identifier: Apache-2.0
// For many numbers: each rank combines a share of them, in the order of the ranks, and gives its result to those who
// need it. The steps of Rabenseifner's allreduce (reduce-scatter, then allgather), each as one exchange of all with
// all, since ranks of one host write each other's memory.
#include <utility>
#include <vector>

#include "collectives/algorithms.hpp"

namespace sluice::collectives {
namespace {

constexpr Tag kShare = kFirst;
constexpr Tag kResult = kFirst + 1;

Rank after(const Schedule& schedule, int distance) { return (schedule.rank + distance) % schedule.size; }

/// Combines the parts in the order of the ranks; `messages`: of the parts of the others.
void combine_in_order(Schedule& schedule, Place mine, Place to, std::size_t bytes,
                      const std::vector<std::uint32_t>& messages) {
  const auto message_of = [&](Rank rank) { return messages[static_cast<std::size_t>(rank)]; };
  const auto let_go = [&](Rank rank) {
    if (rank != schedule.rank) schedule.release(message_of(rank));
  };
  const auto await = [&](Rank rank) {
    if (rank == schedule.rank) return mine;
    schedule.wait(message_of(rank));
    return Schedule::landed(message_of(rank));
  };
  const Place sum = schedule.size > 2 ? schedule.scratch(bytes) : to;
  Place so_far = await(0);
  if (schedule.size == 1) schedule.copy(to, mine, bytes);
  for (Rank rank = 1; rank < schedule.size; ++rank) {
    const Place next = await(rank);
    const Place result = rank + 1 < schedule.size ? sum : to;
    schedule.combine(result, so_far, next, bytes);
    if (rank == 1) let_go(0);
    let_go(rank);
    so_far = result;
  }
}

}  // namespace

std::vector<Share> even_shares(std::size_t bytes, std::size_t parts, std::size_t number) {
  const std::size_t count = bytes / number;
  std::vector<Share> shares(parts);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t here = count / parts + (i < count % parts ? 1 : 0);
    shares[i] = {begin * number, here * number};
    begin += here;
  }
  return shares;
}

void combine_shares(Schedule& schedule, Place from, Place to, std::span<const Share> shares) {
  const Share own = shares[static_cast<std::size_t>(schedule.rank)];
  std::vector<std::uint32_t> messages(shares.size());
  for (int distance = 1; distance < schedule.size; ++distance) {
    const Rank peer = after(schedule, distance);
    const Share theirs = shares[static_cast<std::size_t>(peer)];
    if (own.bytes > 0) messages[static_cast<std::size_t>(peer)] = schedule.receive(peer, kShare, own.bytes);
    if (theirs.bytes > 0) schedule.put(schedule.send(peer, kShare, from + theirs.offset, theirs.bytes));
  }
  schedule.finish();
  if (own.bytes > 0) combine_in_order(schedule, from + own.offset, to, own.bytes, messages);
}

namespace {

/// Shares of the result from other ranks. In place they land aside, since a put of this rank may still read their
/// place.
class Results {
 public:
  Results(Schedule& schedule, Place from, Place to)
      : schedule_(schedule), to_(to), aside_(in_place(schedule, from, to)) {}

  void expect(Rank peer, const Share& share) {
    if (share.bytes == 0) return;
    const auto message = aside_ ? schedule_.receive(peer, kResult, share.bytes)
                                : schedule_.receive_in(peer, kResult, to_ + share.offset, share.bytes);
    arrivals_.push_back({message, share});
  }
  void take_all() {
    if (aside_) schedule_.acquire_all();
    for (const auto& [message, share] : arrivals_) {
      schedule_.wait(message);
      if (aside_) schedule_.copy(to_ + share.offset, Schedule::landed(message), share.bytes);
      schedule_.release(message);
    }
  }

 private:
  static bool in_place(const Schedule& schedule, Place from, Place to) {
    if (from.of != to.of) return false;
    if (from.of != Place::Of::user) return from.index == to.index;
    return schedule.slices[from.index].data() == schedule.slices[to.index].data();
  }

  Schedule& schedule_;
  Place to_;
  bool aside_;
  std::vector<std::pair<std::uint32_t, Share>> arrivals_;
};

}  // namespace

void spread_shares(Schedule& schedule, Place from, Place to, std::span<const Share> shares) {
  const Share own = shares[static_cast<std::size_t>(schedule.rank)];
  Results results(schedule, from, to);
  for (int distance = 1; distance < schedule.size; ++distance) {
    const Rank peer = after(schedule, distance);
    if (own.bytes > 0) schedule.put(schedule.send(peer, kResult, to + own.offset, own.bytes));
    results.expect(peer, shares[static_cast<std::size_t>(peer)]);
  }
  results.take_all();
}

/// A share of the result lands in its place: no rank can have it before this rank has sent its numbers of that share.
void shared_allreduce(Schedule& schedule, Place from, Place to, std::span<const Share> shares) {
  combine_shares(schedule, from, to + shares[static_cast<std::size_t>(schedule.rank)].offset, shares);
  spread_shares(schedule, from, to, shares);
}

void shared_reduce(Schedule& schedule, Place from, Place to, std::span<const Share> shares, Rank root) {
  const Share own = shares[static_cast<std::size_t>(schedule.rank)];
  if (schedule.rank != root) {
    const Place sum = schedule.scratch(own.bytes);
    combine_shares(schedule, from, sum, shares);
    if (own.bytes > 0) schedule.put(schedule.send(root, kResult, sum, own.bytes));
    return;
  }
  combine_shares(schedule, from, to + own.offset, shares);
  Results results(schedule, from, to);
  for (int distance = 1; distance < schedule.size; ++distance) {
    const Rank peer = after(schedule, distance);
    results.expect(peer, shares[static_cast<std::size_t>(peer)]);
  }
  results.take_all();
}

void shared_broadcast(Schedule& schedule, Place data, std::span<const Share> shares, Rank root) {
  const bool at_root = schedule.rank == root;
  const auto share_of = [&](Rank rank) { return shares[static_cast<std::size_t>(rank)]; };
  const Share own = share_of(schedule.rank);
  std::vector<std::uint32_t> arrivals;
  std::uint32_t from_root = 0;
  if (!at_root && own.bytes > 0) from_root = schedule.receive_long(root, kShare, data + own.offset, own.bytes);
  for (int distance = 1; distance < schedule.size && !at_root; ++distance) {
    const Rank peer = after(schedule, distance);
    const Share theirs = share_of(peer);
    if (theirs.bytes > 0) arrivals.push_back(schedule.receive_long(peer, kResult, data + theirs.offset, theirs.bytes));
  }
  schedule.finish();
  for (int distance = 1; distance < schedule.size && at_root; ++distance) {
    const Rank peer = after(schedule, distance);
    const Share theirs = share_of(peer);
    if (theirs.bytes > 0) schedule.put(schedule.send_long(peer, kShare, data + theirs.offset, theirs.bytes));
  }
  if (!at_root && own.bytes > 0) {
    schedule.wait(from_root);
    schedule.release(from_root);
  }
  for (int distance = 1; distance < schedule.size; ++distance) {
    const Rank peer = after(schedule, distance);
    if (peer != root && own.bytes > 0) schedule.put(schedule.send_long(peer, kResult, data + own.offset, own.bytes));
  }
  for (const auto message : arrivals) {
    schedule.wait(message);
    schedule.release(message);
  }
}

}  // namespace sluice::collectives
