// SPDX-License-Identifier: Apache-2.0
#include "collectives/routes.hpp"

#include <map>
#include <optional>
#include <utility>

namespace sluice::collectives {
namespace {

struct BlockOf {
  Rank source = 0;
  Rank target = 0;
  auto operator<=>(const BlockOf&) const = default;
};

/// The blocks of one message, in the order in which they lie in it.
using Blocks = std::vector<BlockOf>;

struct Round {
  std::map<Rank, Blocks> sends;
  std::map<Rank, Blocks> receives;
};

/// The messages that this rank sends and receives in each round.
std::vector<Round> rounds_of(const Schedule& schedule, const Route& route) {
  std::vector<Round> rounds(route(0, 0).size() - 1);
  for (Rank source = 0; source < schedule.size; ++source) {
    for (Rank target = 0; target < schedule.size; ++target) {
      const std::vector<Rank> stops = route(source, target);
      for (std::size_t i = 0; i + 1 < stops.size(); ++i) {
        if (stops[i] == stops[i + 1]) continue;
        if (stops[i] == schedule.rank) rounds[i].sends[stops[i + 1]].push_back({source, target});
        if (stops[i + 1] == schedule.rank) rounds[i].receives[stops[i]].push_back({source, target});
      }
    }
  }
  return rounds;
}

/// The places of the blocks that this rank holds. They change from round to round.
class Holdings {
 public:
  Holdings(Schedule& schedule, Place from, std::size_t bytes) : schedule_(schedule), bytes_(bytes) {
    for (Rank target = 0; target < schedule.size; ++target)
      places_[{schedule.rank, target}] = from + static_cast<std::size_t>(target) * bytes;
  }

  void landed(const Blocks& blocks, std::uint32_t message) {
    for (std::size_t i = 0; i < blocks.size(); ++i) places_[blocks[i]] = Schedule::landed(message) + i * bytes_;
  }
  /// The blocks, one behind the other: where they lie, or a copy.
  Place packed(const Blocks& blocks) {
    const Place first = places_.at(blocks.front());
    if (first.of != Place::Of::message && lie_in_a_row(blocks)) return first;
    const Place copy = schedule_.scratch(blocks.size() * bytes_);
    for (std::size_t i = 0; i < blocks.size(); ++i) schedule_.copy(copy + i * bytes_, places_.at(blocks[i]), bytes_);
    return copy;
  }
  Place at(Rank source) const { return places_.at({source, schedule_.rank}); }

 private:
  bool lie_in_a_row(const Blocks& blocks) const {
    const Place first = places_.at(blocks.front());
    for (std::size_t i = 1; i < blocks.size(); ++i) {
      const Place place = places_.at(blocks[i]);
      if (place.of != first.of || place.index != first.index || place.offset != first.offset + i * bytes_) return false;
    }
    return true;
  }

  Schedule& schedule_;
  std::size_t bytes_;
  std::map<BlockOf, Place> places_;
};

}  // namespace

/// Landed messages are released once no block lies in them any more: at the end.
void routed_alltoall(Schedule& schedule, Place from, Place to, std::size_t bytes, const Route& route) {
  Holdings holdings(schedule, from, bytes);
  std::vector<std::uint32_t> arrivals;
  Tag tag = 0;
  for (const Round& round : rounds_of(schedule, route)) {
    for (const auto& [peer, blocks] : round.sends)
      schedule.put(schedule.send(peer, tag, holdings.packed(blocks), blocks.size() * bytes));
    if (tag++ == 0) schedule.finish();
    for (const auto& [peer, blocks] : round.receives) {
      arrivals.push_back(schedule.receive(peer, tag - 1, blocks.size() * bytes));
      schedule.wait(arrivals.back());
      holdings.landed(blocks, arrivals.back());
    }
  }
  schedule.acquire_all();  // what lands may replace what was sent
  for (Rank source = 0; source < schedule.size; ++source)
    schedule.copy(to + static_cast<std::size_t>(source) * bytes, holdings.at(source), bytes);
  for (const auto message : arrivals) schedule.release(message);
}

}  // namespace sluice::collectives
