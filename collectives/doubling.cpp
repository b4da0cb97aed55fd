// SPDX-License-Identifier: Apache-2.0
// Recursive doubling. Allreduce: Thakur, Rabenseifner, Gropp: "Optimization of Collective Communication Operations in
// MPICH", 2005. Scan: Hillis, Steele: "Data Parallel Algorithms", 1986.
#include <bit>
#include <vector>

#include "collectives/algorithms.hpp"

namespace sluice::collectives {
namespace {

// A round has its distance as a tag, and the first one is that of kFirst.
constexpr Tag kExtra = 0;  // an extra rank's numbers, and the result for it

/// An extra rank gives its numbers to a partner, and gets the result from it.
void through_partner(Schedule& schedule, Rank partner, Place from, Place to, std::size_t bytes) {
  const auto fold = schedule.send(partner, kExtra, from, bytes);
  const auto result = schedule.receive(partner, kExtra, bytes);
  schedule.put(fold);
  schedule.finish();
  schedule.wait(result);
  schedule.acquire(fold);  // it may be in place
  schedule.copy(to, Schedule::landed(result), bytes);
  schedule.release(result);
}

}  // namespace

/// Each round has numbers of its own, so that a put that is under way is never disturbed. The lower ranks come first in
/// each combination, at both partners: so both have the same bits.
void doubling_allreduce(Schedule& schedule, Place from, Place to, std::size_t bytes) {
  const int even = static_cast<int>(std::bit_floor(static_cast<unsigned>(schedule.size)));
  const Rank rank = schedule.rank;
  if (rank >= even) return through_partner(schedule, rank - even, from, to, bytes);
  const Rank extra = rank + even;
  Place so_far = from;
  bool begun = false;
  if (extra < schedule.size) {
    schedule.finish();
    begun = true;
    const auto fold = schedule.receive(extra, kExtra, bytes);
    so_far = schedule.scratch(bytes);
    schedule.wait(fold);
    schedule.combine(so_far, from, Schedule::landed(fold), bytes);
    schedule.release(fold);
  }
  std::uint32_t first = 0;
  for (int distance = 1; distance < even; distance *= 2) {
    const Rank partner = rank ^ distance;
    const Tag tag = static_cast<Tag>(distance);
    const auto theirs = schedule.receive(partner, tag, bytes);
    const auto ours = schedule.send(partner, tag, so_far, bytes);
    if (distance == 1) first = ours;
    schedule.put(ours);
    if (!begun) schedule.finish();
    begun = true;
    schedule.wait(theirs);
    const bool last = 2 * distance >= even;
    if (last) schedule.acquire(first);  // it may be in place
    const Place sum = last ? to : schedule.scratch(bytes);
    const Place landed = Schedule::landed(theirs);
    schedule.combine(sum, rank < partner ? so_far : landed, rank < partner ? landed : so_far, bytes);
    schedule.release(theirs);
    so_far = sum;
  }
  if (!begun) schedule.finish();
  if (even == 1) schedule.copy(to, so_far, bytes);
  if (extra < schedule.size) schedule.put(schedule.send(extra, kExtra, to, bytes));
}

/// In the round of distance d a rank has the sum of the last d ranks up to itself, and gets that of the d before them.
void doubling_scan(Schedule& schedule, Place from, Place to, std::size_t bytes) {
  const Rank rank = schedule.rank;
  Place so_far = from;
  bool begun = false;
  std::vector<std::uint32_t> sent;
  for (int distance = 1; distance < schedule.size; distance *= 2) {
    const Tag tag = static_cast<Tag>(distance);
    if (rank + distance < schedule.size) {
      sent.push_back(schedule.send(rank + distance, tag, so_far, bytes));
      schedule.put(sent.back());
    }
    if (!begun) schedule.finish();
    begun = true;
    if (rank < distance) continue;
    const auto before = schedule.receive(rank - distance, tag, bytes);
    schedule.wait(before);
    const Place sum = schedule.scratch(bytes);
    schedule.combine(sum, Schedule::landed(before), so_far, bytes);
    schedule.release(before);
    so_far = sum;
  }
  if (!begun) schedule.finish();
  for (const auto message : sent) schedule.acquire(message);  // it may be in place
  schedule.copy(to, so_far, bytes);
}

}  // namespace sluice::collectives
