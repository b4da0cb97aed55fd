// SPDX-License-Identifier: Apache-2.0
// Landings of puts, by the way in which the receiver learns of a put (manner.hpp).
#pragma once

#include "backends/ofi/stage.hpp"
#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

/// Told by a number that comes with each put, or by a word that the peer writes.
class RmaLanding final : public DirectLanding {
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

/// Slots whose arrivals are counted.
class CountedLanding final : public DirectLanding {
 public:
  /// With more slots than this they would take too many of the NIC's counters.
  static constexpr int kDeepest = 64;

  CountedLanding(Station& station, const Endpoints& endpoints, const Slots& target, std::span<const Signal> signals);
  ~CountedLanding() override;
  const Target& place() const noexcept { return target_; }
  bool close() override;
  /// Raises the signals to the epochs that have arrived. With the station's mutex.
  void look();

 private:
  struct Slot {
    Owned<fid_cntr> arrivals;
    Owned<fid_mr> memory;  // closed before its counter
  };
  /// One rail of the landing.
  struct Lane {
    Signal signal;
    std::vector<Slot> slots;
    std::uint64_t seen = 0;  // every epoch up to this one has arrived

    bool arrived(std::uint64_t epoch) const;
  };

  void open(std::size_t i, std::size_t endpoint, const Slots& target, const Signal& signal);

  Station& station_;
  std::vector<Lane> lanes_;
  Target target_;
  bool open_ = true;  // the peer can write into it
};

}  // namespace sluice::backends::ofi
