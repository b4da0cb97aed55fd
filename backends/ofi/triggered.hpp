// SPDX-License-Identifier: Apache-2.0
// Puts that the NIC fires: deferred work (fi_trigger(3)), armed ahead, and fired when a counter of rings reaches its
// threshold. What lands is counted by a counter that is bound to the receiver's memory, so a write that has failed is
// never taken for one that has arrived; writes of one endpoint arrive in order, so that count n means epochs 1 to n.
#pragma once

#include "backends/ofi/rma.hpp"

namespace sluice::backends::ofi {

/// Slots whose arrivals are counted.
class CountedLanding final : public Landing {
 public:
  CountedLanding(Station& station, const Slots& target, std::span<const Signal> signals);
  ~CountedLanding() override;
  Key key() const override;
  bool direct() const noexcept override { return true; }
  bool closing_awaited() const noexcept override { return true; }
  void take(device::Lane, std::uint64_t) override {}
  std::string describe() const override;
  /// Raises the signals to what has arrived. Who has the station's mutex calls it.
  void look();

 private:
  struct Lane {
    Signal signal;
    Owned<fid_cntr> arrivals;
    Owned<fid_mr> memory;  // closed before its counter
    std::uint64_t seen = 0;
  };

  Station& station_;
  std::vector<Lane> lanes_;
  Place place_;
};

Owned<fid_cntr> open_counter(const Rail& rail);

/// The counter that a stream rings: for puts of one rail.
class TickBell : public Doorbell {
 public:
  TickBell(Station& station, Owned<fid_cntr> counter);
  ~TickBell() override;
  fid_cntr* counter() const noexcept { return counter_.get(); }
  /// What was rung and not yet counted, is: where the bell is a word of ours, whose listener calls this.
  void look();
  /// Fires what no ring does: armed work that nobody will ever ring for.
  void add(std::uint64_t more);

 private:
  Station& station_;
  Owned<fid_cntr> counter_;
  std::uint64_t counted_ = 0;
};

class TriggeredPut final : public RungPut, private Owner {
 public:
  /// How many epochs may be armed at a time. Each takes one trigger entry.
  static int entries_for(const Place& place) noexcept;

  TriggeredPut(Station& station, Destination& there, const Slots& source, device::Watch& watch, const Place& place);
  ~TriggeredPut() override;

  Fired fired() const noexcept override { return Fired::by_nic; }
  void announce(std::uint64_t epoch, Range part) override;
  bool arm(std::uint64_t epoch, Range part) override;
  std::uint64_t most_armed() const noexcept override { return work_.size(); }
  std::shared_ptr<Doorbell> new_bell() override;
  const void* bell_kind() const noexcept override { return rail_; }
  bool settled() override;
  bool disarmed(bool key_closed) override;
  std::string describe() const override;
  /// Looks at what is over. Who has the station's mutex calls it; returns whether it must be called again soon.
  bool look();

 private:
  void ended(Operation&, const std::string&) override {}  // counters tell of what is over
  bool failed(void* context, const std::string& why) override;
  void peer_lost() override;
  void prepare(std::uint64_t epoch, Range part);
  void queue_armed();
  void suspect(const std::string& why);
  void dispose();
  std::uint64_t ended() const;
  std::uint64_t over();
  std::uint64_t rung() { return epoch_of(bell().rings.load(std::memory_order_relaxed)); }

  Station& station_;
  Destination& there_;
  Slots source_;
  Place place_;
  Rail* rail_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::shared_ptr<Registration> registered_;
  Owned<fid_cntr> over_;
  std::vector<Work> work_;      // by epoch mod size
  std::uint64_t armed_ = 0;     // epochs up to this one are prepared
  std::uint64_t queued_ = 0;    // and these libfabric has
  std::uint64_t refused_ = 0;   // the last epoch that was not armed, because the watch was shut
  std::uint64_t disposed_ = 0;  // armed and never rung for: fired at the end
  std::uint64_t failures_ = 0;  // told by the queue
  std::string broken_;
  bool lost_ = false;                  // the peer
  base::Clock::time_point verdict_{};  // on what is broken, or on what is under way to a peer that is lost
};

}  // namespace sluice::backends::ofi
