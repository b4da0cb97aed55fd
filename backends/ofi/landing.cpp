// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/landing.hpp"

#include <algorithm>
#include <cstring>

#include "backends/ofi/stage.hpp"
#include "device/copy.hpp"

namespace sluice::backends::ofi {
namespace {

class RmaLanding final : public Landing {
 public:
  RmaLanding(Station& station, const Destination& there, const Endpoints& endpoints, const Slots& target,
             std::span<const Signal> signals)
      : Landing({}), station_(station), signals_(signals.begin(), signals.end()), target_(target), slots_(target),
        place_(new_place(station, there, endpoints, target, signals_)), registered_(new_pin(station)) {
    const std::lock_guard lock(station.mutex);
    const auto reached = [&](const auto& rail) { return rail->registered_if_reached(target.memory) != nullptr; };
    if (target.memory.bytes != 0 && !std::ranges::all_of(station.rails, reached)) stage();
    place_->notice = station.manner.has_room(place_->index, target.depth) ? Notice::number : Notice::word;
    for (std::size_t i = 0; i < signals.size(); ++i) open(i, endpoints.of(place_->index, i));
    const bool word = place_->notice == Notice::word;
    how_ = station.provider +
           (place_->staged ? ": lands in memory that the provider reaches, and wait copies it"
                           : ": lands in the target itself") +
           (word ? "; the peer writes the signal too"
                 : "; the engine raises the signal for the number that comes with it");
    if (word) station.written_words.add(signals_);
  }

  ~RmaLanding() override {
    const std::lock_guard lock(station_.mutex);
    station_.written_words.remove(signals_);
  }

  Key key() const { return key_of(*place_); }
  void reach_from(device::Driver& driver) override {
    if (place_->staged) device::reach(driver, slots_.memory);
  }
  /// Never beyond our own memory, whatever the peer has written.
  void take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) override {
    const std::byte* const from = slots_.at(epoch);
    StageHeader header;
    std::memcpy(&header, from, sizeof header);
    const bool inside = header.offset <= target_.slot_bytes && header.bytes <= target_.slot_bytes - header.offset;
    if (inside)
      device::copy(lane, watch, target_.at(epoch) + header.offset, from + StageHeader::kBytes, header.bytes,
                   target_.memory.driver);
  }

 private:
  void stage() {
    const std::size_t stride = StageHeader::kBytes + whole_lines(target_.slot_bytes);
    staging_ = device::allocate(stride * static_cast<std::size_t>(target_.depth), false);
    slots_ = {staging_.extent(), stride, target_.depth};
    place_->staged = true;
    place_->stride = stride;
    way_ = Way::around;
  }

  /// Opens rail `i`, at one of our endpoints. Without bytes, only its signal is registered.
  void open(std::size_t i, std::size_t endpoint) {
    Rail& rail = *station_.rails[endpoint];
    const auto* const word_at = reinterpret_cast<const std::byte*>(signals_[i].word);
    const bool empty = slots_.memory.bytes == 0;
    const auto word = registered_->emplace_back(rail.registered(signals_[i].memory));
    const auto slots = registered_->emplace_back(empty ? word : rail.registered(slots_.memory));
    place_->rail[i] = {static_cast<std::uint32_t>(endpoint), slots->spot(empty ? word_at : slots_.memory.data),
                       word->spot(word_at)};
  }

  Station& station_;
  std::vector<Signal> signals_;
  Slots target_;
  Slots slots_;                 // where puts land
  device::Allocation staging_;  // has them, if the provider does not reach the target
  std::shared_ptr<Target> place_;
  std::shared_ptr<Pin> registered_;
};

}  // namespace

Landed land_uncounted(Station& station, const Destination& there, const Endpoints& endpoints, const Slots& target,
                      std::span<const Signal> signals) {
  auto landing = std::make_unique<RmaLanding>(station, there, endpoints, target, signals);
  Key key = landing->key();
  return {std::move(landing), std::move(key)};
}

}  // namespace sluice::backends::ofi
