// SPDX-License-Identifier: Apache-2.0
#include "backends/mpi/landing.hpp"

#include <algorithm>
#include <utility>

#include "backends/put.hpp"
#include "device/copy.hpp"

namespace sluice::backends::mpi {
namespace {

class MpiLanding final : public Landing, private Party {
 public:
  MpiLanding(Station& station, const Slots& target, const Signal& signal, bool stage)
      : Landing(stage ? "mpi: lands in memory of ours, and wait copies it"
                      : "mpi: lands in the target itself; the engine receives it, and raises the signal",
                stage ? Way::around : Way::direct),
        station_(station), signal_(signal), target_(target), slots_(target),
        early_(static_cast<std::size_t>(target.depth)) {
    if (stage) {
      staging_ = device::allocate(target.memory.bytes, false);
      slots_.memory = staging_.extent();
      parts_.resize(early_.size());
    }
    const std::lock_guard lock(station.mutex);
    number_ = station.add(*this);
  }
  ~MpiLanding() override {
    const std::lock_guard lock(station_.mutex);
    station_.remove(number_);
  }

  Key key() const { return {bytes_of(Place{number_, target_.slot_bytes, target_.depth}), {}, {}}; }
  void reach_from(device::Driver& driver) override {
    if (way() == Way::around) device::reach(driver, slots_.memory);
  }
  void take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) override {
    const Range part = parts_[epoch % parts_.size()];
    device::copy(lane, watch, target_.at(epoch) + part.offset, slots_.at(epoch) + part.offset, part.bytes,
                 target_.memory.driver);
  }

 private:
  // A put whose rank waits for all epochs up to this one.
  struct Asker {
    Address address;
    std::uint64_t number = 0;
    std::uint64_t epoch = 0;
  };

  /// Never beyond our own memory, whatever the peer has sent.
  std::byte* room(const Head& head) override {
    const bool inside = head.offset <= target_.slot_bytes && head.bytes <= target_.slot_bytes - head.offset;
    return inside && is_next(head.epoch) ? slots_.at(head.epoch) + head.offset : nullptr;
  }

  void deliver(const Head& head, const Address& sender, bool placed) override {
    if (head.kind == Head::Kind::put && placed) {
      land(head);
    } else if (head.kind == Head::Kind::ask) {
      askers_.push_back({sender, head.from, head.epoch});
    }
    std::erase_if(askers_, [this](const Asker& one) {
      if (one.epoch > seen_) return false;
      station_.answer(one.address, {.kind = Head::Kind::landed, .to = one.number, .epoch = one.epoch});
      return true;
    });
  }

  bool is_next(std::uint64_t epoch) const noexcept { return epoch > seen_ && epoch - seen_ <= early_.size(); }

  /// Bodies arrive later than heads that were sent after them. Without bytes, an epoch says that all before it have
  /// arrived.
  void land(const Head& head) {
    if (target_.slot_bytes == 0) {
      if (head.epoch <= seen_) return;
      seen_ = head.epoch;
    } else {
      if (!is_next(head.epoch)) return;
      if (!parts_.empty()) parts_[head.epoch % parts_.size()] = {head.offset, head.bytes};
      early_[head.epoch % early_.size()] = true;
      const std::uint64_t before = seen_;
      while (early_[(seen_ + 1) % early_.size()]) {
        ++seen_;
        early_[seen_ % early_.size()] = false;
      }
      if (seen_ == before) return;
    }
    raise_signal(signal_, seen_);
  }

  Station& station_;
  Signal signal_;
  Slots target_;
  Slots slots_;                 // where puts land
  device::Allocation staging_;  // has them, if MPI does not reach the target
  std::vector<Range> parts_;    // by epoch mod depth, for `take`; only with staging
  std::uint64_t number_ = 0;
  std::uint64_t seen_ = 0;   // every epoch up to this one has landed
  std::vector<bool> early_;  // by epoch mod depth: landed before an earlier one
  std::vector<Asker> askers_;
};

}  // namespace

Landed land(Station& station, const Slots& target, const Signal& signal, bool stage) {
  auto landing = std::make_unique<MpiLanding>(station, target, signal, stage);
  Key key = landing->key();
  return {std::move(landing), std::move(key)};
}

}  // namespace sluice::backends::mpi
