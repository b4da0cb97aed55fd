// SPDX-License-Identifier: Apache-2.0
// The receiver learns of a put by counters (Notice::counter). Each slot has a counter that is bound to its memory:
// epoch n has arrived once its slot was written as often as that takes. One counter for all slots would count the
// epochs behind one that has failed (test: FailedWrites.are_never_believed*).
#pragma once

#include "backends/ofi/triggered.hpp"

namespace sluice::backends::ofi {

/// A put that the NIC fires. Deferred work is armed ahead; a ring of the bell fires it.
class TriggeredPut final : public RungPut, private Mover {
 public:
  /// How many epochs may be armed at a time. Each takes one trigger entry.
  static int entries_for(const Place& place) noexcept;

  TriggeredPut(Station& station, Destination& there, const Slots& source, device::Watch& watch, const Target& place);
  ~TriggeredPut() override;

  bool announce(std::uint64_t epoch, Range part) override;
  bool arm(std::uint64_t epoch, Range part) override;
  std::uint64_t most_armed() const noexcept override { return work_->size(); }
  std::shared_ptr<Doorbell> new_bell() override;
  const void* bell_kind() const noexcept override { return rail_; }
  bool landed(std::uint64_t) override { return true; }  // it completes when it is delivered
  bool settled() override;
  bool disarmed(bool key_closed) override;
  std::string describe() const override;
  /// Raises `done` to what has completed. With the station's mutex. Returns whether it must be called again soon.
  bool look();

 private:
  void ended(Operation&, const std::string&) override {}  // it posts deferred work alone
  bool uses(const Route& route) const noexcept override { return &route == route_; }
  std::size_t bytes_under_way() const override { return (work_->queued() - work_->ended()) * place_.slot_bytes; }
  void prepare(std::uint64_t epoch, Range part);
  void queue_armed();
  void dispose();
  std::uint64_t completed();
  TickBell& tick_bell() const noexcept { return static_cast<TickBell&>(bell()); }
  /// Epochs that were fired: those that were rung for, and those disposed of.
  std::uint64_t fired_so_far() const { return std::min(armed_.load(), rung() + disposed_); }
  std::uint64_t rung() const { return epoch_of(bell().rung()); }

  Slots source_;
  Target place_;
  const Route* route_ = nullptr;
  Rail* rail_ = nullptr;  // stays when the route is lost
  std::shared_ptr<Registration> registered_;
  std::unique_ptr<ArmedWork> work_;
  std::atomic<std::uint64_t> armed_{0};  // epochs up to this one are prepared
  std::uint64_t refused_ = 0;            // the last epoch that was not armed, because the watch was shut
  std::uint64_t disposed_ = 0;           // armed and never rung for: fired at the end
};

/// Slots whose arrivals are counted.
class CountedLanding final : public Landing {
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
