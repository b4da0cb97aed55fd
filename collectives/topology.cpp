// SPDX-License-Identifier: Apache-2.0
#include "collectives/topology.hpp"

#include <sluice/error.hpp>

#include <algorithm>
#include <map>
#include <string>

#include "base/env.hpp"
#include "runtime/context.hpp"

namespace sluice::collectives {
namespace {

constexpr int kNone = -1;  // a rank that is in no set

}  // namespace

Sets::Sets(const std::vector<int>& set_of) : set_of_(set_of.size(), kNone), place_of_(set_of.size(), kNone) {
  std::map<int, int> numbers;
  for (std::size_t rank = 0; rank < set_of.size(); ++rank) {
    if (set_of[rank] == kNone) continue;
    const auto [found, is_new] = numbers.try_emplace(set_of[rank], count());
    if (is_new) members_.emplace_back();
    std::vector<Rank>& members = members_[static_cast<std::size_t>(found->second)];
    set_of_[rank] = found->second;
    place_of_[rank] = static_cast<int>(members.size());
    members.push_back(static_cast<Rank>(rank));
  }
}

Rank Sets::partner(Rank rank, int set) const {
  const std::vector<Rank>& there = members(set);
  return there[static_cast<std::size_t>(place_of(rank)) % there.size()];
}

std::string Sets::text() const {
  std::string text = ", nodes";
  for (const int set : set_of_) text += " " + std::to_string(set);
  return text;
}

Sets nodes_of(const Context& context) {
  const std::vector<int> pretended = base::read_env().topology;
  const int ranks = runtime::world_size(context);
  if (pretended.size() > 1 && pretended.size() != static_cast<std::size_t>(ranks))
    throw Error(Code::bad_argument, context.rank(), -1, 0, 0,
                "SLUICE_TOPOLOGY has the nodes of " + std::to_string(pretended.size()) + " ranks, and there are " +
                    std::to_string(ranks));
  std::vector<int> node_of;
  for (Rank rank = 0; rank < context.size(); ++rank) {
    const Rank in_world = runtime::world_rank(context, rank);
    node_of.push_back(pretended.empty()       ? context.node_of(rank)
                      : pretended.size() == 1 ? in_world / pretended.front()
                                              : pretended[static_cast<std::size_t>(in_world)]);
  }
  return Sets(node_of);
}

Sets split(const Sets& nodes, int parts) {
  std::vector<int> set_of;
  int next = 0;
  for (int node = 0; node < nodes.count(); ++node) {
    const std::vector<Rank>& members = nodes.members(node);
    const auto count = static_cast<int>(members.size());
    const int here = std::min(parts, count);
    for (int place = 0; place < count; ++place) {
      const auto rank = static_cast<std::size_t>(members[static_cast<std::size_t>(place)]);
      if (set_of.size() <= rank) set_of.resize(rank + 1);
      set_of[rank] = next + place * here / count;
    }
    next += here;
  }
  return Sets(set_of);
}

Sets leaders_by_node(const Sets& groups, const Sets& nodes) {
  std::vector<int> set_of;
  for (int group = 0; group < groups.count(); ++group) {
    const Rank leader = groups.members(group).front();
    const auto at = static_cast<std::size_t>(leader);
    if (set_of.size() <= at) set_of.resize(at + 1, kNone);
    set_of[at] = nodes.set_of(leader);
  }
  return Sets(set_of);
}

}  // namespace sluice::collectives
