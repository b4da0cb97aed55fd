// SPDX-License-Identifier: Apache-2.0
// Bienz, Gropp, Olson: "Reducing Communication in Algebraic Multigrid with Multi-step Node Aware Communication", 2020
// (by_places); MPI Advance, locality_aware, has all of them for nodes of one size and ranks in their order. Here a set
// of another size has a partner for each rank, too.
#include "collectives/alltoall.hpp"

#include <deque>

namespace sluice::collectives {

void stepwise_alltoall(Schedule& schedule, Place from, Place to, std::size_t bytes, int under_way) {
  const auto block = [bytes](Place of, Rank rank) { return of + static_cast<std::size_t>(rank) * bytes; };
  struct Arrival {
    Rank peer;
    std::uint32_t message;
  };
  std::deque<Arrival> arrivals;
  const auto land = [&] {
    const Arrival next = arrivals.front();
    arrivals.pop_front();
    schedule.wait(next.message);
    schedule.copy(block(to, next.peer), Schedule::landed(next.message), bytes);
    schedule.release(next.message);
  };
  for (int step = 1; step < schedule.size; ++step) {
    const Rank next = (schedule.rank + step) % schedule.size;
    const Rank before = (schedule.rank + schedule.size - step) % schedule.size;
    if (step == under_way + 1) schedule.finish();
    if (static_cast<int>(arrivals.size()) == under_way) land();
    arrivals.push_back({before, schedule.receive(before, 0, bytes)});
    schedule.put(schedule.send(next, 0, block(from, next), bytes));
  }
  if (schedule.size - 1 <= under_way) schedule.finish();
  schedule.copy(block(to, schedule.rank), block(from, schedule.rank), bytes);
  while (!arrivals.empty()) land();
}

Route by_leaders(const Sets& sets) {
  return [&sets](Rank source, Rank target) {
    return std::vector<Rank>{source, sets.first_of_set(source), sets.first_of_set(target), target};
  };
}

Route by_places(const Sets& sets) {
  return [&sets](Rank source, Rank target) {
    return std::vector<Rank>{source, sets.partner(source, sets.set_of(target)), target};
  };
}

Route by_leaders_and_places(const Sets& groups, const Sets& nodes) {
  return [&groups, leaders = leaders_by_node(groups, nodes)](Rank source, Rank target) {
    const Rank collects = groups.first_of_set(source);
    const Rank distributes = groups.first_of_set(target);
    const Rank between = leaders.partner(collects, leaders.set_of(distributes));
    return std::vector<Rank>{source, collects, between, distributes, target};
  };
}

}  // namespace sluice::collectives
