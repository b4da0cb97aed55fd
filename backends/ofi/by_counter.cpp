// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/by_counter.hpp"

#include <algorithm>
#include <utility>

#include "backends/ofi/page_bell.hpp"
#include "base/races.hpp"

namespace sluice::backends::ofi {

// ---- the sender

int entries_for(const Place& place) noexcept {
  constexpr int kCreditsArmed = 4;  // a credit has no slots
  return place.slot_bytes == 0 ? kCreditsArmed : place.depth;
}

class TriggeredPut final : public RungPut, private Mover {
 public:
  TriggeredPut(Station& station, Destination& there, const Slots& source, device::Watch& watch, const Target& place)
      : RungPut(Fired::by_nic, watch, nullptr, source.slot_bytes), Mover(station, there, watch, "a write"),
        source_(source), place_(place) {
    const std::lock_guard lock(station.mutex);
    route_ = &there.route(place.rail[0].endpoint);
    rail_ = route_->rail;
    if (source.memory.bytes != 0) registered_ = rail_->registered(source.memory);
    bell_ = make_bell(station, *rail_);
    work_ = std::make_unique<ArmedWork>(station, *rail_, entries_for(place));
    join();
    station.triggered.push_back(this);
  }

  ~TriggeredPut() override {
    const std::lock_guard lock(station_.mutex);
    leave();
    std::erase(station_.triggered, this);
    dispose();
    if (registered_ != nullptr) rail_->disown(*registered_);
    work_->keep(bell_, std::move(registered_));
    work_->look();
    station_.left_work.push_back(std::move(work_));
  }

  bool announce(std::uint64_t epoch, Range part) override {
    if (epoch > watch().done.value.load(std::memory_order_acquire) + work_->size()) return false;
    // Armed work could not be disposed of alone where other puts share the bell.
    if (shared()) return false;
    const std::lock_guard lock(station_.mutex);
    if (watch().shut() || epoch != armed_ + 1) return false;  // in order: the lane arms those before it
    prepare(epoch, part);
    queue_armed();
    return true;
  }

  /// Without the mutex where `announce` has armed the epoch.
  bool arm(std::uint64_t epoch, Range part) override {
    if (!watch().shut() && armed_.load(std::memory_order_acquire) >= epoch) return true;
    const std::lock_guard lock(station_.mutex);
    if (watch().shut()) {
      refused_ = epoch;
      return false;
    }
    if (armed_ < epoch) {
      prepare(epoch, part);
      queue_armed();
    }
    return true;
  }

  std::uint64_t most_armed() const noexcept override { return work_->size(); }

  std::shared_ptr<Doorbell> new_bell() override {
    const std::lock_guard lock(station_.mutex);
    return make_bell(station_, *rail_);
  }
  const void* bell_kind() const noexcept override { return rail_; }

  bool look() {
    queue_armed();
    const bool failed = work_->failures() > 0 && disposed_ == 0 && !gives_up();
    if (failed && !suspicious()) suspect(failure_of(*route_, work_->why()));
    if ((failed || suspicious()) && !watch().failed()) {
      judge();
      return true;  // its end waits for the verdict
    }
    // Read first, since an epoch that is rung for meanwhile may be armed.
    const std::uint64_t never = std::max(refused_, given_up());
    std::uint64_t done = completed();
    // Epochs that were not armed, and never will be, complete behind those that were.
    if (done >= std::min(armed_.load(), rung())) done = std::max(done, never);
    if (!base::reached(watch().done, done)) base::raise(watch().done, done, watch().done_parking);
    // A NIC needs no nudge. None towards a dead peer, to which the provider would try to connect.
    if (!station_.rings_by_page && work_->ended() < fired_so_far() && !lost()) tick_bell().nudge();
    return work_->queued() < armed_;
  }

  bool landed(std::uint64_t) override { return true; }  // it completes when it is delivered

  /// A credit that was armed and not rung for is disposed of now, while its word belongs to no other channel.
  bool settled() override {
    const std::lock_guard lock(station_.mutex);
    if (place_.notice == Notice::word) dispose();
    queue_armed();
    return work_->ended() >= fired_so_far();
  }

  bool disarmed(bool key_closed) override {
    const std::lock_guard lock(station_.mutex);
    if (key_closed) dispose();
    queue_armed();
    return work_->ended() >= armed_;
  }

  std::string describe() const override {
    const std::string by = tick_bell().rung_for_gpus_by();
    return station_.provider + ": armed ahead, and written into the target when the " +
           (station_.rings_by_page ? "NIC's counter is rung" : "bell is rung") + (by.empty() ? "" : " by the " + by) +
           (place_.notice == Notice::counter ? ", where arrivals are counted" : "");
  }

 private:
  void prepare(std::uint64_t epoch, Range part) {
    Work& work = work_->of(epoch);
    work = {.operation = work.operation, .word = epoch};
    if (place_.notice == Notice::word) {
      const Spot& there = place_.rail[0].word;
      work.from = {&work.word, sizeof work.word};
      work.to = {there.address, sizeof work.word, there.key};
    } else {
      const Spot slot = place_.slot_of(epoch, 0);
      work.from = {source_.memory.bytes == 0 ? nullptr : source_.at(epoch) + part.offset, part.bytes};
      work.to = {slot.address + part.offset, part.bytes, slot.key};
      work.desc = registered_ == nullptr ? nullptr : registered_->desc();
    }
    work.write.ep = rail_->endpoint();
    work.write.msg.msg_iov = &work.from;
    work.write.msg.desc = &work.desc;
    work.write.msg.iov_count = 1;
    work.write.msg.addr = route_->address;
    work.write.msg.rma_iov = &work.to;
    work.write.msg.rma_iov_count = 1;
    // A write that is counted as complete has arrived, and so have all before it, whichever completions were counted.
    work.write.flags = FI_DELIVERY_COMPLETE;
    work.write.msg.context = &work.deferred.context;  // sockets insists on it, cxi does not mind
    work.deferred.threshold = threshold(epoch);
    work.deferred.triggering_cntr = tick_bell().counter();
    work.deferred.completion_cntr = work_->counter();
    work.deferred.op_type = FI_OP_WRITE;
    work.deferred.op.rma = &work.write;
    armed_.store(epoch, std::memory_order_release);
  }

  /// In order. A threshold that is met already fires at once, so a late epoch does no harm: `look` tries again.
  void queue_armed() {
    while (work_->queued() < armed_ && work_->queue(work_->queued() + 1)) {
    }
  }

  /// Fires armed work that nothing will ever ring for: puts, whose memory the peer has closed; and credits, whose
  /// memory is never closed, with the number that their word has already.
  void dispose() {
    const std::uint64_t fired = fired_so_far();
    if (armed_ <= fired) return;
    const std::uint64_t left = armed_ - fired;
    for (std::uint64_t epoch = rung() + 1; epoch <= armed_; ++epoch) work_->of(epoch).word = rung();
    disposed_ += left;
    tick_bell().add(left);
  }

  /// The last epoch that has completed, of those that were rung for. A GPU stores to the counter first and then to the
  /// word, and may be held up in between. Until the word is written, which must not be used for anything else before,
  /// the put has not completed, however far the NIC is (test: Bells.*).
  std::uint64_t completed() {
    const std::uint64_t ended = gives_up() || disposed_ != 0 ? armed_.load() : work_->ended();
    return std::min(ended, rung());
  }

  void ended(Operation&, const std::string&) override {}  // it posts deferred work alone
  bool uses(const Route& route) const noexcept override { return &route == route_; }
  std::size_t bytes_under_way() const override { return (work_->queued() - work_->ended()) * place_.slot_bytes; }
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

std::unique_ptr<Put> fire_by_nic(Station& station, Destination& there, const Slots& source, device::Watch& watch,
                                 const Target& place) {
  return std::make_unique<TriggeredPut>(station, there, source, watch, place);
}

bool look(TriggeredPut& put) { return put.look(); }

// ---- the receiver

class CountedLanding final : public Landing {
 public:
  CountedLanding(Station& station, const Destination& there, const Endpoints& endpoints, const Slots& target,
                 std::span<const Signal> signals)
      : Landing(station.provider + ": lands in the target itself, where arrivals are counted"), station_(station),
        place_(new_place(station, there, endpoints, target, signals)) {
    const std::lock_guard lock(station.mutex);
    place_->notice = Notice::counter;
    if (station.rails.front()->by_offset()) place_->stride = 0;
    try {
      for (std::size_t i = 0; i < signals.size(); ++i) open(i, endpoints.of(place_->index, i), target, signals[i]);
    } catch (...) {
      lanes_.clear();  // with the mutex
      throw;
    }
    station.counted.push_back(this);
  }

  ~CountedLanding() override {
    const std::lock_guard lock(station_.mutex);
    std::erase(station_.counted, this);
    lanes_.clear();
  }

  Key key() const { return key_of(*place_); }

  bool close() override {
    const std::lock_guard lock(station_.mutex);
    for (Lane& lane : lanes_) {
      for (Slot& slot : lane.slots) slot.memory.reset();
    }
    return std::exchange(open_, false);
  }

  void look() {
    for (Lane& lane : lanes_) {
      const std::uint64_t before = lane.seen;
      while (lane.arrived(lane.seen + 1)) ++lane.seen;
      if (lane.seen != before) raise_signal(lane.signal, lane.seen);
    }
  }

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

    /// The slot of `epoch` is written once in `depth` epochs.
    bool arrived(std::uint64_t epoch) const {
      const base::races::Unseen libfabric;
      return fi_cntr_read(slots[epoch % slots.size()].arrivals.get()) * slots.size() >= epoch;
    }
  };

  /// Opens rail `i`, at one of our endpoints.
  void open(std::size_t i, std::size_t endpoint, const Slots& target, const Signal& signal) {
    Rail& rail = *station_.rails[endpoint];
    place_->rail[i].endpoint = static_cast<std::uint32_t>(endpoint);
    if (!rail.by_offset()) place_->rail[i].slots.address = reinterpret_cast<std::uintptr_t>(target.memory.data);
    Lane& lane = lanes_.emplace_back(Lane{signal, {}});
    for (std::uint64_t slot = 0; slot < static_cast<std::uint64_t>(target.depth); ++slot) {
      auto counter = open_counter(rail);
      const device::Extent memory{target.at(slot), target.slot_bytes, nullptr, target.memory.driver};
      auto registered = rail.register_memory(memory, FI_REMOTE_WRITE, FI_RMA_EVENT);
      // In the order that cxi insists on.
      if (rail.binds_memory()) check(fi_mr_bind(registered.get(), &rail.endpoint()->fid, 0), "fi_mr_bind");
      check(fi_mr_bind(registered.get(), &counter->fid, FI_REMOTE_WRITE), "fi_mr_bind");
      if (rail.binds_memory()) check(fi_mr_enable(registered.get()), "fi_mr_enable");
      place_->keys.push_back(fi_mr_key(registered.get()));
      lane.slots.push_back({std::move(counter), std::move(registered)});
    }
  }

  Station& station_;
  std::shared_ptr<Target> place_;
  std::vector<Lane> lanes_;
  bool open_ = true;  // the peer can write into it
};

Landed land_counted(Station& station, const Destination& there, const Endpoints& endpoints, const Slots& target,
                    std::span<const Signal> signals) {
  auto landing = std::make_unique<CountedLanding>(station, there, endpoints, target, signals);
  Key key = landing->key();
  return {std::move(landing), std::move(key)};
}

void look(CountedLanding& landing) { landing.look(); }

}  // namespace sluice::backends::ofi
