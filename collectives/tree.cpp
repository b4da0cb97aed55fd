// SPDX-License-Identifier: Apache-2.0
// Broadcast and reduce along trees. Binomial ones: Thakur, Rabenseifner, Gropp: "Optimization of Collective
// Communication Operations in MPICH", 2005. Ones whose levels have fan-outs of their own: Ramos, Hoefler: "Modeling
// Communication in Cache-Coherent SMP Systems: A Case Study with Xeon Phi", 2013. There the children read a cache line
// of their parent; here it writes one of each child, so that c is the work of one more put.
#include <algorithm>

#include "collectives/algorithms.hpp"

namespace sluice::collectives {
namespace {

/// Counted from the root, the parent of a rank is the rank without its lowest bit. The nearest child is first: it has
/// the fewest ranks below it.
Branch binomial_branch(int size, Rank root, Rank rank) {
  const auto rank_at = [&](int place) { return static_cast<Rank>((place + root) % size); };
  const int place = (rank - root + size) % size;
  Branch branch;
  if (place != 0) branch.parent = rank_at(place & (place - 1));
  for (int bit = 1; bit < size && (place & bit) == 0 && place + bit < size; bit *= 2)
    branch.children.push_back(rank_at(place + bit));
  return branch;
}

/// Sends to the children in their order.
void broadcast(Schedule& schedule, const Branch& branch, Place data, std::size_t bytes) {
  const bool aside = bytes <= kEager;
  std::uint32_t from = 0;
  if (!branch.is_root()) {
    from = aside ? schedule.receive(branch.parent, kFirst, bytes)
                 : schedule.receive_long(branch.parent, kFirst, data, bytes);
  }
  if (!branch.is_root() || !aside) schedule.finish();
  if (!branch.is_root()) {
    schedule.wait(from);
    if (aside) schedule.copy(data, Schedule::landed(from), bytes);
    schedule.release(from);
  }
  for (const Rank child : branch.children) {
    if (aside)
      schedule.put(schedule.send(child, kFirst, data, bytes));
    else
      schedule.put(schedule.send_long(child, kFirst, data, bytes));
  }
  if (branch.is_root() && aside) schedule.finish();
}

/// A rank combines its own numbers, and then those of its children in their order.
void reduce(Schedule& schedule, const Branch& branch, Place from, Place to, std::size_t bytes) {
  if (branch.children.empty() && !branch.is_root()) {
    schedule.put(schedule.send(branch.parent, kFirst, from, bytes));
    return schedule.finish();
  }
  schedule.finish();
  const Place sum = branch.is_root() ? to : schedule.scratch(bytes);
  Place so_far = from;
  for (const Rank child : branch.children) {
    const auto message = schedule.receive(child, kFirst, bytes);
    schedule.wait(message);
    schedule.combine(sum, so_far, Schedule::landed(message), bytes);
    schedule.release(message);
    so_far = sum;
  }
  if (branch.is_root() && branch.children.empty()) schedule.copy(to, from, bytes);
  if (!branch.is_root()) schedule.put(schedule.send(branch.parent, kFirst, sum, bytes));
}

}  // namespace

void binomial_broadcast(Schedule& schedule, Place data, std::size_t bytes, Rank root) {
  Branch branch = binomial_branch(schedule.size, root, schedule.rank);
  std::ranges::reverse(branch.children);  // those with the most ranks below them first
  broadcast(schedule, branch, data, bytes);
}

void binomial_reduce(Schedule& schedule, Place from, Place to, std::size_t bytes, Rank root) {
  reduce(schedule, binomial_branch(schedule.size, root, schedule.rank), from, to, bytes);
}

void level_broadcast(Schedule& schedule, Place data, std::size_t bytes, Rank root, const Levels& levels) {
  broadcast(schedule, level_branch(schedule.size, levels, root, schedule.rank), data, bytes);
}

void level_reduce(Schedule& schedule, Place from, Place to, std::size_t bytes, Rank root, const Levels& levels) {
  reduce(schedule, level_branch(schedule.size, levels, root, schedule.rank), from, to, bytes);
}

}  // namespace sluice::collectives
