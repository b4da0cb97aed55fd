// SPDX-License-Identifier: Apache-2.0
#include "collectives/levels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace sluice::collectives {
namespace {

/// The most ranks that trees of some depth reach, by the sum of their fan-outs; and the first fan-out of such a tree.
struct Most {
  long ranks = 0;  ///< 0: there is no such tree
  int first = 0;
};

/// Returns the entry of `sum` for trees with one more level than those of `below`.
Most one_more(const std::vector<Most>& below, int sum) {
  Most most;
  for (int first = std::max(1, sum + 1 - static_cast<int>(below.size())); first < sum; ++first) {
    const long rest = below[static_cast<std::size_t>(sum - first)].ranks;
    if (rest > 0 && 1 + first * rest > most.ranks) most = {1 + first * rest, first};
  }
  return most;
}

/// By depth less 1, and by sum.
using Table = std::vector<std::vector<Most>>;

/// Up to the least sum of each depth that reaches all ranks; of one level, as far as those below others need.
Table table_of(int ranks, int deepest) {
  Table table(1);
  const int most = std::min(ranks - 1, 2 * static_cast<int>(std::ceil(std::sqrt(ranks))) + 1);
  for (int sum = 0; sum <= most; ++sum) table[0].push_back({sum == 0 ? 0L : 1L + sum, sum});
  for (int depth = 2; depth <= deepest; ++depth) {
    std::vector<Most> row;
    for (int sum = 0; row.empty() || row.back().ranks < ranks; ++sum) row.push_back(one_more(table.back(), sum));
    table.push_back(std::move(row));
  }
  return table;
}

Levels tree_of(const Table& table, int depth, int sum) {
  Levels levels;
  for (; depth > 0; --depth) {
    levels.push_back(table[static_cast<std::size_t>(depth - 1)][static_cast<std::size_t>(sum)].first);
    sum -= levels.back();
  }
  return levels;
}

}  // namespace

long reach(const Levels& levels) {
  long total = 1;
  long level = 1;
  for (const int fan_out : levels) total += level *= fan_out;
  return total;
}

/// For each depth the fewest children in sum. Deeper trees than binary ones have levels of single children, which only
/// add to both costs.
Levels best_levels(int ranks, double c, double b) {
  if (ranks < 2) return {};
  const auto deepest = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1));
  const Table table = table_of(ranks, deepest);
  Levels best{ranks - 1};
  double least = c * (ranks - 1) + b;
  for (int depth = 2; depth <= deepest; ++depth) {
    const int sum = static_cast<int>(table[static_cast<std::size_t>(depth - 1)].size()) - 1;
    const double cost = c * sum + b * depth;
    if (cost >= least) continue;
    least = cost;
    best = tree_of(table, depth, sum);
  }
  return best;
}

std::string text_of(const Levels& levels) {
  std::string text;
  for (const int fan_out : levels) text += (text.empty() ? "" : ", ") + std::to_string(fan_out);
  return text;
}

Branch level_branch(int size, const Levels& levels, Rank root, Rank rank) {
  const long place = (rank - root + size) % size;
  const auto rank_at = [&](long at) { return static_cast<Rank>((at + root) % size); };
  Branch branch;
  long begin = 0;  // of the level
  long count = 1;
  long above = 0;  // the begin of the level above
  int fan_out_above = 0;
  for (const int fan_out : levels) {
    const long next = begin + count;
    if (place < next) {
      for (long child = next + (place - begin) * fan_out, i = 0; i < fan_out && child + i < size; ++i)
        branch.children.push_back(rank_at(child + i));
      break;
    }
    above = begin;
    begin = next;
    count *= fan_out;
    fan_out_above = fan_out;
  }
  if (place > 0) branch.parent = rank_at(above + (place - begin) / fan_out_above);
  return branch;
}

}  // namespace sluice::collectives
