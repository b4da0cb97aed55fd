// SPDX-License-Identifier: Apache-2.0
// Trees with a fan-out for each level. Ramos, Hoefler: "Modeling Communication in Cache-Coherent SMP Systems: A Case
// Study with Xeon Phi", 2013: a rank that writes to k others takes c * k + b, where c is what one more transfer of a
// cache line costs, and b is what the line takes on its way; a tree takes the sum over its levels.
#pragma once

#include <sluice/types.hpp>

#include <string>
#include <vector>

namespace sluice::collectives {

/// Each inner rank of level i has `levels[i]` children, as long as there are ranks; the root is level 0.
using Levels = std::vector<int>;

/// The fan-outs that reach `ranks` ranks, with the least sum of c * k + b.
Levels best_levels(int ranks, double c, double b);
/// How many ranks a tree reaches, the root with them.
long reach(const Levels& levels);
/// "3, 2".
std::string text_of(const Levels& levels);

/// A rank's place in such a tree of ranks, which are counted from the root, level by level.
class LevelTree {
 public:
  LevelTree(int size, const Levels& levels, Rank root, Rank rank);
  bool is_root() const noexcept { return parent_ < 0; }
  Rank parent() const noexcept { return parent_; }
  const std::vector<Rank>& children() const noexcept { return children_; }

 private:
  Rank parent_ = -1;
  std::vector<Rank> children_;
};

}  // namespace sluice::collectives
