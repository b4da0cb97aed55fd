// SPDX-License-Identifier: Apache-2.0
// Binomial trees: counted from the root, the parent of a rank is the rank without its lowest bit. Thakur, Rabenseifner,
// Gropp: "Optimization of Collective Communication Operations in MPICH", 2005.
#include <vector>

#include "collectives/algorithms.hpp"

namespace sluice::collectives {
namespace {

/// The place of a rank in the tree of a root.
class Tree {
 public:
  Tree(const Schedule& schedule, Rank root)
      : size_(schedule.size), root_(root), own_((schedule.rank - root + size_) % size_) {}

  bool is_root() const noexcept { return own_ == 0; }
  Rank parent() const noexcept { return rank_of(own_ & (own_ - 1)); }
  /// The nearest first: it has the fewest ranks below it.
  std::vector<Rank> children() const {
    std::vector<Rank> children;
    for (int bit = 1; bit < size_ && (own_ & bit) == 0 && own_ + bit < size_; bit *= 2)
      children.push_back(rank_of(own_ + bit));
    return children;
  }

 private:
  Rank rank_of(int place) const noexcept { return (place + root_) % size_; }

  int size_;
  Rank root_;
  int own_;
};

}  // namespace

void binomial_broadcast(Schedule& schedule, Place data, std::size_t bytes, Rank root) {
  const Tree tree(schedule, root);
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
  const std::vector<Rank> children = tree.children();
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    if (aside)
      schedule.put(schedule.send(*child, kFirst, data, bytes));
    else
      schedule.put(schedule.send_long(*child, kFirst, data, bytes));
  }
  if (tree.is_root() && aside) schedule.finish();
}

/// A rank combines its own numbers, and those of the ranks below it in the order of the tree.
void binomial_reduce(Schedule& schedule, Place from, Place to, std::size_t bytes, Rank root) {
  const Tree tree(schedule, root);
  const std::vector<Rank> children = tree.children();
  if (children.empty() && !tree.is_root()) {
    const auto up = schedule.send(tree.parent(), kFirst, from, bytes);
    schedule.put(up);
    return schedule.finish();
  }
  const Place sum = tree.is_root() ? to : schedule.scratch(bytes);
  schedule.finish();
  Place so_far = from;
  for (const Rank child : children) {
    const auto message = schedule.receive(child, kFirst, bytes);
    schedule.wait(message);
    schedule.combine(sum, so_far, Schedule::landed(message), bytes);
    schedule.release(message);
    so_far = sum;
  }
  if (tree.is_root() && children.empty()) schedule.copy(to, from, bytes);
  if (!tree.is_root()) schedule.put(schedule.send(tree.parent(), kFirst, sum, bytes));
}

}  // namespace sluice::collectives
