// SPDX-License-Identifier: Apache-2.0
// Blocks by puts: each rank writes to its peers, and waits for what comes. The first to be written is the next rank's,
// so that no rank is written by all at once. With short blocks no rank waits for one that has nothing for it. A long
// block waits until its receiver has started, and those behind it wait with it.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <vector>

#include "collectives/algorithms.hpp"

namespace sluice::collectives {
namespace {

/// How far on from this rank a peer is.
int distance(const Schedule& schedule, Rank peer) { return (peer - schedule.rank + schedule.size) % schedule.size; }

struct Arrival {
  std::uint32_t message = 0;
  Place to;
  std::size_t bytes = 0;  ///< to copy there; 0: it has landed there
};

struct Copy {
  Place to;
  Place from;
  std::size_t bytes = 0;
};

/// Blocks of this rank for itself.
std::vector<Copy> own_blocks(const Schedule& schedule, std::span<const Part> from, std::span<const Part> to) {
  std::vector<Copy> copies;
  for (const Part& source : from) {
    const auto target = std::ranges::find_if(
        to, [&](const Part& part) { return part.peer == schedule.rank && part.tag == source.tag; });
    if (source.peer == schedule.rank && target != to.end())
      copies.push_back({target->place, source.place, source.bytes});
  }
  return copies;
}

}  // namespace

void exchange(Schedule& schedule, std::span<const Part> from, std::span<const Part> to, bool aside) {
  std::vector<Arrival> arrivals;
  std::vector<Part> expected;
  std::ranges::copy_if(to, std::back_inserter(expected),
                       [&](const Part& part) { return part.peer != schedule.rank && part.bytes > 0; });
  std::vector<Part> sends;
  std::ranges::copy_if(from, std::back_inserter(sends),
                       [&](const Part& part) { return part.peer != schedule.rank && part.bytes > 0; });
  const auto is_long = [](const Part& part) { return part.bytes > kEager; };
  // In the order in which they arrive.
  std::ranges::stable_sort(expected, std::greater(), [&](const Part& part) { return distance(schedule, part.peer); });
  for (const Part& part : expected) {
    const auto message = is_long(part) ? schedule.receive_long(part.peer, part.tag, part.place, part.bytes, aside)
                                       : schedule.receive(part.peer, part.tag, part.bytes);
    arrivals.push_back({message, part.place, is_long(part) && !aside ? 0 : part.bytes});
  }
  std::ranges::stable_sort(sends, {}, [&](const Part& part) { return distance(schedule, part.peer); });
  for (const Part& part : sends)
    if (!is_long(part)) schedule.put(schedule.send(part.peer, part.tag, part.place, part.bytes));
  schedule.finish();
  for (const Part& part : sends)
    if (is_long(part)) schedule.put(schedule.send_long(part.peer, part.tag, part.place, part.bytes));
  std::vector<Copy> own = own_blocks(schedule, from, to);
  for (Copy& copy : own) {
    if (!aside) continue;  // else it may replace a source
    const Place copied = schedule.scratch(copy.bytes);
    schedule.copy(copied, copy.from, copy.bytes);
    copy.from = copied;
  }
  if (aside) schedule.acquire_all();  // what lands may replace what was sent
  for (const Copy& copy : own) schedule.copy(copy.to, copy.from, copy.bytes);
  for (const Arrival& arrival : arrivals) {
    schedule.wait(arrival.message);
    schedule.copy(arrival.to, Schedule::landed(arrival.message), arrival.bytes);
    schedule.release(arrival.message);
  }
}

}  // namespace sluice::collectives
