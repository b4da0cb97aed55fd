// SPDX-License-Identifier: Apache-2.0
#include "backends/mpi/put.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "backends/mpi/landing.hpp"
#include "backends/mpi/stage.hpp"

namespace sluice::backends::mpi {
namespace {

class MpiPut final : public EnginePut, private Mover {
 public:
  MpiPut(Station& station, Destination& there, const Slots& source, device::Watch& watch, const Place& place,
         bool stage)
      : EnginePut(watch, place.depth, place.slot_bytes), station_(station), there_(there), source_(source),
        place_(place) {
    if (stage) stage_.emplace(source, place.depth);
    const std::lock_guard lock(station.mutex);
    number_ = station.add(*this);
    there.movers.insert(this);
  }
  ~MpiPut() override {
    const std::lock_guard lock(station_.mutex);
    stop_asking();
    there_.movers.erase(this);
    station_.remove(number_);
  }

  bool post(std::size_t, std::uint64_t epoch, Range part) override {
    const std::lock_guard lock(station_.mutex);
    if (there_.lost || !there_.suspicion.empty()) return false;  // no epoch may pass one that was lost
    const std::byte* from = nullptr;
    if (part.bytes != 0) {
      from = stage_ ? stage_->copy(watch(), epoch, part) : source_.at(epoch) + part.offset;
      if (from == nullptr) return false;
    }
    try {
      station_.send(there_.address,
                    {.kind = Head::Kind::put,
                     .to = place_.number,
                     .from = number_,
                     .epoch = epoch,
                     .offset = part.offset,
                     .bytes = part.bytes},
                    {from, part.bytes});
    } catch (const std::runtime_error& reason) {
      refused(reason.what());
      return false;
    }
    sent_ = epoch;
    if (part.bytes <= kMostInHead) over(epoch);  // it was copied
    return true;
  }
  bool at_rest(std::size_t) override {
    const std::lock_guard lock(station_.mutex);
    return !stage_ || stage_->at_rest(watch());
  }
  /// Without bytes, an epoch stands for all before it.
  bool cumulative() const noexcept override { return place_.slot_bytes == 0; }

  bool landed(std::uint64_t epoch) override {
    const std::lock_guard lock(station_.mutex);
    return have_landed(std::min(epoch, sent_));
  }
  /// True also if messages to the peer have failed, since closing has to end.
  bool settled() override {
    const std::lock_guard lock(station_.mutex);
    return there_.lost || failed_ || have_landed(sent_);
  }

  std::string describe() const override {
    std::string text =
        "mpi: sent as a message, above " + std::to_string(kMostInHead) + " bytes as two, the second into the target";
    if (stage_) text += ", from a copy in memory of ours";
    return text;
  }

 private:
  /// Returns whether the peer has confirmed all epochs up to this one. If not, requests that.
  bool have_landed(std::uint64_t epoch) {
    if (landed_ >= epoch) return true;
    if (asked_ >= epoch || there_.lost || !there_.suspicion.empty()) return false;
    try {
      station_.send(there_.address, {.kind = Head::Kind::ask, .to = place_.number, .from = number_, .epoch = epoch});
      if (asked_ == landed_) ++station_.awaited;
      asked_ = epoch;
    } catch (const std::runtime_error& reason) {
      refused(reason.what());
    }
    return false;
  }
  void stop_asking() noexcept {
    if (asked_ != landed_) --station_.awaited;
    asked_ = landed_;
  }

  void deliver(const Head& head, const Address&, bool) override {
    if (head.kind != Head::Kind::landed || head.epoch <= landed_ || head.epoch > asked_) return;
    landed_ = head.epoch;
    if (landed_ == asked_) --station_.awaited;
    watch().done_parking.wake();
  }
  void left(std::uint64_t epoch) override { over(epoch); }
  void refused(const std::string& why) override { station_.suspect(there_, why); }
  void fail(const std::string& why) override {
    failed_ = true;
    watch().fail(Code::transport, "a message over mpi failed: " + why);
  }
  void give_up() override {
    station_.abandon(number_, [this](std::uint64_t epoch) { over(epoch); });
    stop_asking();
    watch().done_parking.wake();
  }

  Station& station_;
  Destination& there_;
  Slots source_;
  Place place_;
  std::optional<Stage> stage_;
  std::uint64_t number_ = 0;
  std::uint64_t sent_ = 0;    // epochs that were left out, since the watch was shut, are behind it
  std::uint64_t landed_ = 0;  // epochs up to this one are visible at the peer, as it has said
  std::uint64_t asked_ = 0;   // the same, once it has answered
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<Put> prepare(Station& station, Destination& there, const Slots& source, device::Watch& watch,
                             const Key& key, bool stage) {
  const auto place = value_of<Place>(key.bytes);
  if (place.depth < 1) throw std::runtime_error("a bad key");
  return std::make_unique<MpiPut>(station, there, source, watch, place, stage);
}

}  // namespace sluice::backends::mpi
