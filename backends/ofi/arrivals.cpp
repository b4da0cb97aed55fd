// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/arrivals.hpp"

#include <algorithm>

#include "base/seeded.hpp"

namespace sluice::backends::ofi {

std::uint64_t Arrivals::add(std::span<const Signal> signals, const Slots& target) {
  auto landing = std::make_unique<Landing>();
  landing->moves_bytes = target.slot_bytes != 0;
  for (const Signal& signal : signals) {
    landing->lanes.push_back({signal, 0, std::vector<bool>(static_cast<std::size_t>(target.depth))});
  }
  auto free = std::find(landings_.begin(), landings_.end(), nullptr);
  if (free == landings_.end()) free = landings_.insert(free, nullptr);
  *free = std::move(landing);
  return static_cast<std::uint64_t>(free - landings_.begin());
}

void Arrivals::landed(std::uint64_t number, std::size_t endpoint, std::size_t endpoints) noexcept {
  const std::uint64_t index = number & ((std::uint64_t{1} << manner_.index_bits) - 1);
  if (index >= landings_.size() || landings_[index] == nullptr) return;  // closed meanwhile: its peer has failed
  Landing& landing = *landings_[index];
  Lane& lane = landing.lanes[rail_of(index, endpoint, endpoints) % landing.lanes.size()];
  land(lane, epoch_of(number, lane.seen), landing.moves_bytes);
}

std::uint64_t Arrivals::epoch_of(std::uint64_t number, std::uint64_t seen) const noexcept {
  if (manner_.epoch_bits == 0 || base::seeded("epoch_in_number_ignored")) return seen + 1;
  const std::uint64_t mask = (std::uint64_t{1} << manner_.epoch_bits) - 1;
  const std::uint64_t ahead = ((number >> manner_.index_bits) - seen) & mask;
  return ahead > mask / 2 ? seen : seen + ahead;
}

void Arrivals::land(Lane& lane, std::uint64_t epoch, bool moves_bytes) noexcept {
  if (epoch <= lane.seen) return;
  if (!moves_bytes) {
    lane.seen = epoch;  // without bytes a later epoch says that all before it are over too
  } else {
    lane.early[epoch % lane.early.size()] = true;
    const std::uint64_t before = lane.seen;
    while (lane.early[(lane.seen + 1) % lane.early.size()]) {
      ++lane.seen;
      lane.early[lane.seen % lane.early.size()] = false;
    }
    if (lane.seen == before) return;
  }
  raise_signal(lane.signal, lane.seen);
}

}  // namespace sluice::backends::ofi
