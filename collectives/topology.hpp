// SPDX-License-Identifier: Apache-2.0
// Which ranks are near each other.
#pragma once

#include <sluice/context.hpp>

#include <string>
#include <vector>

namespace sluice::collectives {

/// Ranks in sets, each of which is in the order of ranks.
class Sets {
 public:
  /// `set_of`: a number for each rank, the same for the ranks of a set.
  explicit Sets(const std::vector<int>& set_of);

  int count() const noexcept { return static_cast<int>(members_.size()); }
  int set_of(Rank rank) const { return set_of_[static_cast<std::size_t>(rank)]; }
  /// The place of a rank in its set.
  int place_of(Rank rank) const { return place_of_[static_cast<std::size_t>(rank)]; }
  const std::vector<Rank>& members(int set) const { return members_[static_cast<std::size_t>(set)]; }
  Rank first_of_set(Rank rank) const { return members(set_of(rank)).front(); }
  /// The member of a set that works for `rank`: in sets of one size, the one at its place.
  Rank partner(Rank rank, int set) const;
  /// For ranks to compare: the number of the set of each rank.
  std::string text() const;

 private:
  std::vector<int> set_of_;
  std::vector<int> place_of_;
  std::vector<std::vector<Rank>> members_;
};

/// The hosts of a context, or those that SLUICE_TOPOLOGY pretends, which numbers the ranks as the world does.
/// @throws Error{Code::bad_argument} if that names another number of ranks than the world has
Sets nodes_of(const Context& context);
/// Each node in `parts` sets of neighbouring ranks, or in as many as it has ranks.
Sets split(const Sets& nodes, int parts);
/// The first ranks of all sets, by node.
Sets leaders_by_node(const Sets& groups, const Sets& nodes);

}  // namespace sluice::collectives
