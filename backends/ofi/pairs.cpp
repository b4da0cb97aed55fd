// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/pairs.hpp"

#include <algorithm>
#include <tuple>

namespace sluice::backends::ofi {
namespace {

Grade grade_of(const EndpointAddress& ours, const EndpointAddress& theirs, bool here) {
  if (ours.ip.version == 0 && theirs.ip.version == 0) return Grade::own;  // its provider knows the way
  const auto way = base::way(ours.ip, theirs.ip);
  if (!way || *way == base::Way::own) return Grade::own;
  if (*way == base::Way::itself) return here ? Grade::own : Grade::none;
  return *way == base::Way::other ? Grade::other : Grade::none;
}

}  // namespace

Grades grades_of(const Address& ours, const Address& theirs, bool here) {
  Grades grades{theirs.endpoints.size(), {}};
  for (const EndpointAddress& rail : ours.endpoints) {
    for (const EndpointAddress& endpoint : theirs.endpoints) grades.all.push_back(grade_of(rail, endpoint, here));
  }
  return grades;
}

std::vector<Pair> pair_rails(const Address& ours, const Address& theirs, const Grades& from_here,
                             const Grades& from_there, bool first) {
  const auto grade = [&](const Pair& pair) {
    return std::min(from_here.at(pair.ours, pair.theirs), from_there.at(pair.theirs, pair.ours));
  };
  const auto order = [&](const Pair& pair) {
    const bool apart = ours.endpoints[pair.ours].network != theirs.endpoints[pair.theirs].network;
    return std::tuple(apart, pair.ours + pair.theirs, first ? pair.ours : pair.theirs);
  };
  std::vector<Pair> all;
  for (std::size_t i = 0; i < ours.endpoints.size(); ++i) {
    for (std::size_t j = 0; j < theirs.endpoints.size(); ++j) all.push_back({i, j});
  }
  Grade best = Grade::other;
  for (const Pair& pair : all) best = std::max(best, grade(pair));
  std::erase_if(all, [&](const Pair& pair) { return grade(pair) < best; });
  std::ranges::sort(all, {}, order);
  std::vector<Pair> chosen;
  for (const Pair& pair : all) {
    const auto meets = [&](const Pair& other) { return other.ours == pair.ours || other.theirs == pair.theirs; };
    if (std::ranges::none_of(chosen, meets)) chosen.push_back(pair);
  }
  return chosen;
}

}  // namespace sluice::backends::ofi
