// SPDX-License-Identifier: Apache-2.0
// Deferred work (fi_trigger(3)): armed ahead, and fired by the NIC when a counter of rings reaches its threshold. The
// puts that use it are in by_counter.cpp.
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
  /// Rings it for a GPU's stream, by name; empty: no GPU's stream does, or it rings as any other stream.
  virtual std::string rung_for_gpus_by() const { return {}; }
  /// Counts the rings that were not yet counted, where the bell is a word of ours. Returns whether there were any.
  virtual bool look();
  /// Fires armed work that nothing will ever ring for.
  void add(std::uint64_t more) { fi_cntr_add(counter_.get(), more); }
  /// Work that it has rung for has not completed: `look` makes the provider try again to fire it.
  void nudge() noexcept { nudged_ = true; }

 protected:
  Station& station_;
  std::uint64_t counted_ = 0;  // rings that the counter has, or is given by others

 private:
  Owned<fid_cntr> counter_;
  bool nudged_ = false;
};

/// The deferred work of a put. When a put is destroyed, the station keeps its work until that has completed: the NIC
/// has it.
class ArmedWork final : public Owner {
 public:
  /// Takes `entries`, each for an epoch.
  ArmedWork(Station& station, Rail& rail, int entries);
  ~ArmedWork() override;

  std::size_t size() const noexcept { return work_.size(); }
  Work& of(std::uint64_t epoch) noexcept { return work_[epoch % work_.size()]; }
  fid_cntr* counter() const noexcept { return completed_.get(); }
  /// Hands `epoch` to the NIC. False: not now.
  bool queue(std::uint64_t epoch);
  std::uint64_t queued() const noexcept { return queued_; }
  /// How many epochs have completed or failed, and how many of them have failed.
  std::uint64_t ended() const { return fi_cntr_read(completed_.get()) + failures(); }
  std::uint64_t failures() const { return std::max(fi_cntr_readerr(completed_.get()), failures_); }
  /// Why the first of them failed; empty: not known yet.
  const std::string& why() const noexcept { return why_; }

  /// The put is destroyed.
  void keep(std::shared_ptr<Doorbell> bell, std::shared_ptr<Registration> source) {
    bell_ = std::move(bell);
    source_ = std::move(source);
  }
  /// Gives its entries back once all has completed. With the station's mutex. Returns whether this may be destroyed.
  bool look();
  /// The memory that libfabric has pointers into, if this is destroyed before all has completed.
  std::vector<Work> memory() noexcept { return std::move(work_); }

 private:
  void ended(Operation&, const std::string& why_not) override;

  Station& station_;
  Rail& rail_;
  int entries_;
  std::shared_ptr<Doorbell> bell_;  // of a destroyed put
  std::shared_ptr<Registration> source_;
  Owned<fid_cntr> completed_;
  std::vector<Work> work_;  // by epoch mod size
  std::uint64_t queued_ = 0;
  std::uint64_t failures_ = 0;  // reported by the queue
  std::string why_;
  bool was_complete_ = false;
};

}  // namespace sluice::backends::ofi
