// SPDX-License-Identifier: Apache-2.0
// Landings of puts that the receiver learns of by a number or by a word. Slots whose arrivals are counted are in
// by_counter.hpp.
#pragma once

#include "backends/ofi/stage.hpp"
#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

class RmaLanding final : public Landing {
 public:
  RmaLanding(Station& station, const Endpoints& endpoints, const Slots& target, std::span<const Signal> signals);
  ~RmaLanding() override;
  const Target& place() const noexcept { return place_; }
  void reach_from(device::Driver& driver) override {
    if (staged_) staged_->reach_from(driver);
  }
  void take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) override {
    staged_->take(lane, watch, epoch);
  }

 private:
  void open(std::size_t i, std::size_t endpoint, const device::Extent& memory);

  Station& station_;
  std::vector<Signal> signals_;
  std::optional<StagedSlots> staged_;
  std::vector<std::shared_ptr<Registration>> registered_;
  Target place_;
};

}  // namespace sluice::backends::ofi
