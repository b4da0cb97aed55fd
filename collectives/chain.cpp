// SPDX-License-Identifier: Apache-2.0
// A scan from rank to rank: each combines what the ranks before it have with its own, from the left to the right. It
// takes p - 1 steps one after the other, and its result depends on nothing but the numbers.
#include "collectives/algorithms.hpp"

namespace sluice::collectives {

void chain_scan(Schedule& schedule, Place from, Place to, std::size_t bytes) {
  const Rank next = schedule.rank + 1;
  const bool sends = next < schedule.size;
  if (schedule.rank == 0) {
    if (sends) schedule.put(schedule.send(next, kFirst, from, bytes));
    schedule.finish();
    return schedule.copy(to, from, bytes);
  }
  const auto before = schedule.receive(schedule.rank - 1, kFirst, bytes);
  schedule.finish();
  schedule.wait(before);
  schedule.combine(to, Schedule::landed(before), from, bytes);
  schedule.release(before);
  if (sends) schedule.put(schedule.send(next, kFirst, to, bytes));
}

}  // namespace sluice::collectives
