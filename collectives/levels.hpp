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

/// The neighbours of a rank in a tree.
struct Branch {
  Rank parent = -1;  ///< of the root: -1
  std::vector<Rank> children;

  bool is_root() const noexcept { return parent < 0; }
};

/// In a tree of ranks that are counted from the root, level by level.
Branch level_branch(int size, const Levels& levels, Rank root, Rank rank);

}  // namespace sluice::collectives
