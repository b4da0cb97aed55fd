// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/by_counter.hpp"

#include <algorithm>
#include <utility>

#include "backends/ofi/page_bell.hpp"
#include "backends/ofi/rma.hpp"

namespace sluice::backends::ofi {
namespace {

/// Epochs of a credit, which has no slots, that may be armed at a time.
constexpr int kCreditsArmed = 4;

std::shared_ptr<TickBell> make_bell(Station& station, const Rail& rail) {
  auto counter = open_counter(rail);
  const auto page = station.rings_by_page ? page_of(rail, counter.get()) : std::nullopt;
  if (page) return std::make_shared<PageBell>(station, std::move(counter), *page);
  return std::make_shared<TickBell>(station, std::move(counter));
}

/// In the order that cxi insists on.
Owned<fid_mr> register_counted(Rail& rail, const std::byte* from, std::size_t bytes, device::Driver* gpus,
                               fid_cntr* counter) {
  fid_mr* const mr =
      rail.register_memory({const_cast<std::byte*>(from), bytes, nullptr, gpus}, FI_REMOTE_WRITE, FI_RMA_EVENT);
  Owned<fid_mr> registered(mr);
  if (rail.binds_memory()) check(fi_mr_bind(mr, &rail.endpoint()->fid, 0), "fi_mr_bind");
  check(fi_mr_bind(mr, &counter->fid, FI_REMOTE_WRITE), "fi_mr_bind");
  if (rail.binds_memory()) check(fi_mr_enable(mr), "fi_mr_enable");
  return registered;
}

}  // namespace

// ---- the sender, where the engine posts the write

/// It completes when it is delivered. A flush would be counted too.
bool RmaPut::post_counted(Lane& lane, const Message& message) {
  return write(lane, message, {}, true, lane.of(message.epoch)) != Posted::busy;
}

// ---- the sender, where the NIC fires the write

int TriggeredPut::entries_for(const Place& place) noexcept {
  return place.slot_bytes == 0 ? kCreditsArmed : place.depth;
}

TriggeredPut::TriggeredPut(Station& station, Destination& there, const Slots& source, device::Watch& watch,
                           const Target& place)
    : RungPut(Fired::by_nic, watch, nullptr, source.slot_bytes), Mover(station, there, watch), source_(source),
      place_(place) {
  const std::lock_guard lock(station.mutex);
  route_ = &there.route(place.rail[0].endpoint);
  rail_ = route_->rail;
  if (source.memory.bytes != 0) registered_ = rail_->registered(source.memory);
  use(make_bell(station, *rail_));
  work_ = std::make_unique<ArmedWork>(station, *rail_, entries_for(place));
  join();
  station.triggered.push_back(this);
}

TriggeredPut::~TriggeredPut() {
  const std::lock_guard lock(station_.mutex);
  leave();
  std::erase(station_.triggered, this);
  dispose();
  if (registered_ != nullptr) rail_->disown(*registered_);
  work_->keep(own_bell(), std::move(registered_));
  work_->look();
  station_.left_work.push_back(std::move(work_));
}

/// Fires armed work that nothing will ever ring for: puts, whose memory the peer has closed; and credits, whose memory
/// is never closed, with the number that their word has already.
void TriggeredPut::dispose() {
  const std::uint64_t fired = fired_so_far();
  if (armed_ <= fired) return;
  const std::uint64_t left = armed_ - fired;
  for (std::uint64_t epoch = rung() + 1; epoch <= armed_; ++epoch) work_->of(epoch).word = rung();
  disposed_ += left;
  tick_bell().add(left);
}

std::shared_ptr<Doorbell> TriggeredPut::new_bell() {
  const std::lock_guard lock(station_.mutex);
  return make_bell(station_, *rail_);
}

bool TriggeredPut::announce(std::uint64_t epoch, Range part) {
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
bool TriggeredPut::arm(std::uint64_t epoch, Range part) {
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

void TriggeredPut::prepare(std::uint64_t epoch, Range part) {
  Work& work = work_->of(epoch);
  work = {.operation = work.operation, .word = epoch};
  if (place_.notice == Notice::word) {
    const Place::OfRail& there = place_.rail[0];
    work.from = {&work.word, sizeof work.word};
    work.to = {there.word, sizeof work.word, there.word_key};
  } else {
    std::byte* const from = source_.memory.bytes == 0 ? nullptr : source_.at(epoch) + part.offset;
    work.from = {from, part.bytes};
    work.to = {place_.address(0, epoch) + part.offset, part.bytes, place_.key(0, epoch)};
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
void TriggeredPut::queue_armed() {
  while (work_->queued() < armed_ && work_->queue(work_->queued() + 1)) {
  }
}

/// The last epoch that has completed, of those that were rung for. A GPU stores to the counter first and then to the
/// word, and may be held up in between. Until the word is written, which must not be used for anything else before, the
/// put has not completed, however far the NIC is (test: Bells.*).
std::uint64_t TriggeredPut::completed() {
  const std::uint64_t ended = gives_up() || disposed_ != 0 ? armed_.load() : work_->ended();
  return std::min(ended, rung());
}

bool TriggeredPut::look() {
  queue_armed();
  const bool failed = work_->failures() > 0 && disposed_ == 0 && !gives_up();
  if (failed && !suspicious())
    suspect("a write over " + station_.provider + " from " + route_->text + " failed" +
            (work_->why().empty() ? "" : ": " + work_->why()) + " (" + kChosenBy + ")");
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

/// A credit that was armed and not rung for is disposed of now, while its word belongs to no other channel.
bool TriggeredPut::settled() {
  const std::lock_guard lock(station_.mutex);
  if (place_.notice == Notice::word) dispose();
  queue_armed();
  return work_->ended() >= fired_so_far();
}

bool TriggeredPut::disarmed(bool key_closed) {
  const std::lock_guard lock(station_.mutex);
  if (key_closed) dispose();
  queue_armed();
  return work_->ended() >= armed_;
}

std::string TriggeredPut::describe() const {
  const std::string by = tick_bell().rung_for_gpus_by();
  return station_.provider + ": armed ahead, and written into the target when the " +
         (station_.rings_by_page ? "NIC's counter is rung" : "bell is rung") + (by.empty() ? "" : " by the " + by) +
         (place_.notice == Notice::counter ? ", where arrivals are counted" : "");
}

// ---- the receiver

CountedLanding::CountedLanding(Station& station, const Endpoints& endpoints, const Slots& target,
                               std::span<const Signal> signals)
    : Landing(station.provider + ": lands in the target itself, where arrivals are counted"), station_(station) {
  const std::lock_guard lock(station.mutex);
  target_.index = station.arrivals.add(signals, target, endpoints);
  target_.slot_bytes = target.slot_bytes;
  target_.stride = station.rails.front()->by_offset() ? 0 : target.slot_bytes;
  target_.depth = target.depth;
  target_.rails = static_cast<std::uint32_t>(signals.size());
  target_.notice = Notice::counter;
  try {
    for (std::size_t i = 0; i < signals.size(); ++i) open(i, endpoints.of(target_.index, i), target, signals[i]);
  } catch (...) {
    station.arrivals.remove(target_.index);
    lanes_.clear();
    throw;
  }
  station.counted.push_back(this);
}

/// Opens rail `i`, at one of our endpoints.
void CountedLanding::open(std::size_t i, std::size_t endpoint, const Slots& target, const Signal& signal) {
  Rail& rail = *station_.rails[endpoint];
  target_.rail[i].endpoint = static_cast<std::uint32_t>(endpoint);
  target_.rail[i].slots = rail.by_offset() ? 0 : reinterpret_cast<std::uintptr_t>(target.memory.data);
  Lane lane{signal, {}};
  for (std::uint64_t slot = 0; slot < static_cast<std::uint64_t>(target.depth); ++slot) {
    auto counter = open_counter(rail);
    auto memory = register_counted(rail, target.at(slot), target.slot_bytes, target.memory.driver, counter.get());
    target_.keys.push_back(fi_mr_key(memory.get()));
    lane.slots.push_back({std::move(counter), std::move(memory)});
  }
  lanes_.push_back(std::move(lane));
}

bool CountedLanding::close() {
  const std::lock_guard lock(station_.mutex);
  for (Lane& lane : lanes_) {
    for (Slot& slot : lane.slots) slot.memory.reset();
  }
  return std::exchange(open_, false);
}

CountedLanding::~CountedLanding() {
  const std::lock_guard lock(station_.mutex);
  std::erase(station_.counted, this);
  station_.arrivals.remove(target_.index);
  lanes_.clear();
}

/// The slot of `epoch` is written once in `depth` epochs.
bool CountedLanding::Lane::arrived(std::uint64_t epoch) const {
  return fi_cntr_read(slots[epoch % slots.size()].arrivals.get()) * slots.size() >= epoch;
}

void CountedLanding::look() {
  for (Lane& lane : lanes_) {
    const std::uint64_t before = lane.seen;
    while (lane.arrived(lane.seen + 1)) ++lane.seen;
    if (lane.seen != before) raise_signal(lane.signal, lane.seen);
  }
}

}  // namespace sluice::backends::ofi
