// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/arrivals.hpp"

#include <algorithm>

namespace sluice::backends::ofi {

std::uint64_t Arrivals::add(std::span<const Signal> signals, const Slots& target, const Endpoints& endpoints) {
  auto free = std::find(landings_.begin(), landings_.end(), nullptr);
  if (free == landings_.end()) free = landings_.insert(free, nullptr);
  const auto index = static_cast<std::uint64_t>(free - landings_.begin());
  *free = std::make_unique<Landing>();
  (*free)->moves_bytes = target.slot_bytes != 0;
  for (const Signal& signal : signals) {
    std::vector<Lane>& lanes = (*free)->lanes;
    lanes.push_back(
        {signal, endpoints.of(index, lanes.size()), 0, std::vector<bool>(static_cast<std::size_t>(target.depth))});
  }
  return index;
}

namespace {

std::uint64_t bits(int count) noexcept { return (std::uint64_t{1} << count) - 1; }

std::uint64_t epoch_of(std::uint64_t number, const Manner& manner, std::uint64_t seen) noexcept {
  if (manner.epoch_bits == 0) return seen + 1;
  const std::uint64_t mask = bits(manner.epoch_bits);
  const std::uint64_t ahead = ((number >> manner.index_bits) - seen) & mask;
  return ahead > mask / 2 ? seen : seen + ahead;
}

}  // namespace

void Arrivals::landed(std::uint64_t number, std::size_t endpoint) noexcept {
  if (!manner_.takes_two() || (number & kTwo) == 0) return landed(number, manner_, endpoint);
  landed(number & bits(kHalfBits), half(), endpoint);
  landed(number >> kHalfBits & bits(kHalfBits), half(), endpoint);
}

void Arrivals::landed(std::uint64_t number, const Manner& manner, std::size_t endpoint) noexcept {
  const std::uint64_t index = number & bits(manner.index_bits);
  if (index >= landings_.size() || landings_[index] == nullptr) return;  // closed meanwhile: its peer has failed
  Landing& landing = *landings_[index];
  const auto lane = std::find_if(landing.lanes.begin(), landing.lanes.end(),
                                 [&](const Lane& one) { return one.endpoint == endpoint; });
  if (lane != landing.lanes.end()) land(*lane, epoch_of(number, manner, lane->seen), landing.moves_bytes);
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
