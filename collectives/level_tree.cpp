// SPDX-License-Identifier: Apache-2.0
// Broadcast and reduce along trees whose levels have fan-outs of their own. Ramos, Hoefler: "Modeling Communication in
// Cache-Coherent SMP Systems: A Case Study with Xeon Phi", 2013. There the children read a cache line of their parent;
// here it writes one of each child, so that c is the work of one more put.
#include "collectives/algorithms.hpp"

namespace sluice::collectives {

void level_broadcast(Schedule& schedule, Place data, std::size_t bytes, Rank root, const Levels& levels) {
  const LevelTree tree(schedule.size, levels, root, schedule.rank);
  const bool aside = bytes <= kEager;
  std::uint32_t from = 0;
  if (!tree.is_root()) {
    from = aside ? schedule.receive(tree.parent(), kFirst, bytes)
                 : schedule.receive_long(tree.parent(), kFirst, data, bytes);
  }
  if (!tree.is_root() || !aside) schedule.finish();
  if (!tree.is_root()) {
    schedule.wait(from);
    if (aside) schedule.copy(data, Schedule::landed(from), bytes);
    schedule.release(from);
  }
  for (const Rank child : tree.children()) {
    if (aside)
      schedule.put(schedule.send(child, kFirst, data, bytes));
    else
      schedule.put(schedule.send_long(child, kFirst, data, bytes));
  }
  if (tree.is_root() && aside) schedule.finish();
}

/// A rank combines its own numbers, and then those of its children in their order.
void level_reduce(Schedule& schedule, Place from, Place to, std::size_t bytes, Rank root, const Levels& levels) {
  const LevelTree tree(schedule.size, levels, root, schedule.rank);
  if (tree.children().empty() && !tree.is_root()) {
    schedule.put(schedule.send(tree.parent(), kFirst, from, bytes));
    return schedule.finish();
  }
  schedule.finish();
  const Place sum = tree.is_root() ? to : schedule.scratch(bytes);
  Place so_far = from;
  for (const Rank child : tree.children()) {
    const auto message = schedule.receive(child, kFirst, bytes);
    schedule.wait(message);
    schedule.combine(sum, so_far, Schedule::landed(message), bytes);
    schedule.release(message);
    so_far = sum;
  }
  if (tree.is_root() && tree.children().empty()) schedule.copy(to, from, bytes);
  if (!tree.is_root()) schedule.put(schedule.send(tree.parent(), kFirst, sum, bytes));
}

}  // namespace sluice::collectives
