// SPDX-License-Identifier: Apache-2.0
// The dissemination barrier: in round k a rank receives a signal from the rank 2^k before it. The signal implies all
// that its sender has received, so that after the round it stands for the 2^(k+1) - 1 ranks before. Hensgen, Finkel,
// Manber: "Two Algorithms for Barrier Synchronization", 1988.
//
// With several ways, a rank receives as many signals in each round. Ramos, Hoefler: "Modeling Communication in
// Cache-Coherent SMP Systems: A Case Study with Xeon Phi", 2013.
#include <vector>

#include "collectives/algorithms.hpp"

namespace sluice::collectives {

void dissemination(Schedule& schedule, int ways) {
  struct Round {
    std::vector<std::uint32_t> to;
    std::vector<std::uint32_t> from;
  };
  std::vector<Round> rounds;
  const int size = schedule.size;
  for (int distance = 1; distance < size; distance *= ways + 1) {
    Round& round = rounds.emplace_back();
    for (int way = 1; way <= ways && way * distance < size; ++way) {
      const int far = way * distance;
      round.to.push_back(schedule.send((schedule.rank + far) % size, static_cast<Tag>(far), {}, 0));
      round.from.push_back(schedule.receive((schedule.rank + size - far) % size, static_cast<Tag>(far), 0));
    }
  }
  const auto put_all = [&](const Round& round) {
    for (const auto message : round.to) schedule.put(message);
  };
  if (!rounds.empty()) put_all(rounds.front());
  schedule.finish();
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (i > 0) put_all(rounds[i]);
    for (const auto message : rounds[i].from) {
      schedule.wait(message);
      schedule.release(message);
    }
  }
}

}  // namespace sluice::collectives
