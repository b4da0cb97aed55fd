// SPDX-License-Identifier: Apache-2.0
// The dissemination barrier: in round k a rank hears from the one 2^k before it, so that after the round it has heard,
// directly or not, from the 2^(k+1) - 1 before it. Hensgen, Finkel, Manber: "Two Algorithms for Barrier
// Synchronization", 1988.
#include <vector>

#include "collectives/algorithms.hpp"

namespace sluice::collectives {

void dissemination(Schedule& schedule) {
  struct Round {
    std::uint32_t to;
    std::uint32_t from;
  };
  std::vector<Round> rounds;
  const int size = schedule.size;
  for (int distance = 1; distance < size; distance *= 2) {
    const auto tag = static_cast<Tag>(distance);
    rounds.push_back({schedule.send((schedule.rank + distance) % size, tag, {}, 0),
                      schedule.receive((schedule.rank + size - distance) % size, tag, 0)});
  }
  if (!rounds.empty()) schedule.put(rounds.front().to);
  schedule.finish();
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (i > 0) schedule.put(rounds[i].to);
    schedule.wait(rounds[i].from);
    schedule.release(rounds[i].from);
  }
}

}  // namespace sluice::collectives
