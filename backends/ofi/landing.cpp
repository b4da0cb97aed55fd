// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/landing.hpp"

#include <algorithm>

namespace sluice::backends::ofi {

RmaLanding::RmaLanding(Station& station, const Endpoints& endpoints, const Slots& target,
                       std::span<const Signal> signals)
    : Landing({}), station_(station), signals_(signals.begin(), signals.end()) {
  const std::lock_guard lock(station.mutex);
  const auto reached = [&](const auto& rail) { return rail->registered_if_reached(target.memory) != nullptr; };
  if (target.memory.bytes != 0 && !std::ranges::all_of(station.rails, reached)) staged_.emplace(target);
  const Slots& slots_here = staged_ ? staged_->slots() : target;
  place_.index = station.arrivals.add(signals_, target, endpoints);
  place_.slot_bytes = target.slot_bytes;
  place_.stride = slots_here.slot_bytes;
  place_.staged = staged_.has_value();
  place_.depth = target.depth;
  place_.rails = static_cast<std::uint32_t>(signals_.size());
  place_.notice = station.manner.has_room(place_.index, target.depth) ? Notice::number : Notice::word;
  try {
    for (std::size_t i = 0; i < signals_.size(); ++i) open(i, endpoints.of(place_.index, i), slots_here.memory);
  } catch (...) {
    station.arrivals.remove(place_.index);
    throw;
  }
  if (staged_) way_ = Way::around;
  how_ = station_.provider +
         (staged_ ? ": lands in memory that the provider reaches, and wait copies it" : ": lands in the target itself");
  const bool word = place_.notice == Notice::word;
  how_ +=
      word ? "; the peer writes the signal too" : "; the engine raises the signal for the number that comes with it";
  if (word) station.written_words.add(signals_);
}

/// Opens rail `i`, at one of our endpoints. Without bytes, only its signal is registered.
void RmaLanding::open(std::size_t i, std::size_t endpoint, const device::Extent& memory) {
  Rail& rail = *station_.rails[endpoint];
  const auto word = rail.registered(signals_[i].memory);
  const auto slots = memory.bytes == 0 ? word : rail.registered(memory);
  const auto* const at = reinterpret_cast<const std::byte*>(signals_[i].word);
  place_.rail[i] = {static_cast<std::uint32_t>(endpoint),
                    memory.bytes == 0 ? word->address(at) : slots->address(memory.data), slots->key(),
                    word->address(at), word->key()};
  registered_.insert(registered_.end(), {word, slots});
}

RmaLanding::~RmaLanding() {
  const std::lock_guard lock(station_.mutex);
  station_.arrivals.remove(place_.index);
  station_.written_words.remove(signals_);
  registered_.clear();
}

}  // namespace sluice::backends::ofi
