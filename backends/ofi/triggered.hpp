// SPDX-License-Identifier: Apache-2.0
// Puts that the NIC fires: deferred work (fi_trigger(3)), armed ahead, and fired when a counter of rings reaches its
// threshold. What lands is counted by counters that are bound to the receiver's memory, one a slot: epoch n is there
// once its slot was written as often as that takes. One counter for all would count the epochs behind one that has
// failed (test: FailedWrites.are_never_believed*).
#pragma once

#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

Owned<fid_cntr> open_counter(const Rail& rail);

/// The counter that a stream rings: for puts of one rail.
class TickBell : public Doorbell {
 public:
  TickBell(Station& station, Owned<fid_cntr> counter);
  ~TickBell() override;
  fid_cntr* counter() const noexcept { return counter_.get(); }
  /// Who rings it for a GPU's stream; empty: no GPU's does, or the stream does as any other.
  virtual std::string rung_for_gpus_by() const { return {}; }
  /// Counts the rings that were not yet counted, where the bell is a word of ours, and returns whether there were any.
  virtual bool look();
  /// Fires what no ring does: armed work that nobody will ever ring for.
  void add(std::uint64_t more);
  /// Something that it has rung for is not over: `look` has the provider look once more what it can fire.
  void nudge() noexcept { nudged_ = true; }

 private:
  Station& station_;
  Owned<fid_cntr> counter_;
  bool nudged_ = false;

 protected:
  std::uint64_t counted_ = 0;  // rings that the counter has, or is given by others
};

/// The deferred work of a put. It stays with the station until it is over when the put has gone before, whose peer is
/// lost: the NIC has it, and what the queue tells of it concerns nobody else.
class ArmedWork final : public Owner {
 public:
  /// Takes `entries`, each for an epoch.
  ArmedWork(Station& station, Rail& rail, int entries);
  ~ArmedWork() override;

  std::size_t size() const noexcept { return work_.size(); }
  Work& of(std::uint64_t epoch) noexcept { return work_[epoch % work_.size()]; }
  fid_cntr* counter() const noexcept { return over_.get(); }
  /// Hands `epoch` to the NIC. False: not now.
  bool queue(std::uint64_t epoch);
  std::uint64_t queued() const noexcept { return queued_; }
  /// Epochs that are over, and those of them that have failed.
  std::uint64_t ended() const;
  std::uint64_t failures() const;
  /// Of the first that failed, once it is known.
  const std::string& why() const noexcept { return why_; }

  /// The put is gone.
  void keep(std::shared_ptr<Doorbell> bell, std::shared_ptr<Registration> source) {
    bell_ = std::move(bell);
    source_ = std::move(source);
  }
  /// Gives its entries back once all is over. Who has the station's mutex calls it; returns whether it can go.
  bool look();
  /// What libfabric has pointers into, if this is to go before it is over.
  std::vector<Work> memory() noexcept { return std::move(work_); }

 private:
  void ended(Operation&, const std::string&) override {}  // counters tell of what is over
  bool failed(void* context, const std::string& why) override;

  Station& station_;
  Rail& rail_;
  int entries_;
  std::shared_ptr<Doorbell> bell_;  // of a put that is gone
  std::shared_ptr<Registration> source_;
  Owned<fid_cntr> over_;
  std::vector<Work> work_;  // by epoch mod size
  std::uint64_t queued_ = 0;
  std::uint64_t failures_ = 0;  // told by the queue
  std::string why_;
  bool was_over_ = false;
};

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
  bool landed(std::uint64_t) override { return true; }  // over once it is delivered
  bool settled() override;
  bool disarmed(bool key_closed) override;
  std::string describe() const override;
  /// Looks at what is over. Who has the station's mutex calls it; returns whether it must be called again soon.
  bool look();

 private:
  void peer_lost() override { loss_.raise(); }
  void path_lost(const Route& route, const std::string& why) override;
  std::size_t bytes_under_way() const override { return (work_->queued() - work_->ended()) * place_.slot_bytes; }
  void prepare(std::uint64_t epoch, Range part);
  void queue_armed();
  void dispose();
  void suspect();
  std::uint64_t over();
  std::uint64_t rung() { return epoch_of(bell().rung()); }

  Station& station_;
  Destination& there_;
  Slots source_;
  Target place_;
  const Route* route_ = nullptr;
  Rail* rail_ = nullptr;
  std::shared_ptr<Registration> registered_;
  std::unique_ptr<ArmedWork> work_;
  std::uint64_t armed_ = 0;     // epochs up to this one are prepared
  std::uint64_t refused_ = 0;   // the last epoch that was not armed, because the watch was shut
  std::uint64_t disposed_ = 0;  // armed and never rung for: fired at the end
  Suspicion suspicion_;
  Loss loss_;
};

}  // namespace sluice::backends::ofi
