// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/triggered.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include "backends/ofi/cxi.hpp"

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
Owned<fid_mr> register_counted(Rail& rail, const device::Extent& memory, fid_cntr* counter) {
  fid_mr* mr = nullptr;
  check(fi_mr_reg(rail.domain(), memory.data, memory.bytes, FI_REMOTE_WRITE, 0, rail.new_key(), FI_RMA_EVENT, &mr,
                  nullptr),
        "fi_mr_reg");
  Owned<fid_mr> registered(mr);
  const bool by_endpoint = (rail.info().domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
  if (by_endpoint) check(fi_mr_bind(mr, &rail.endpoint()->fid, 0), "fi_mr_bind");
  check(fi_mr_bind(mr, &counter->fid, FI_REMOTE_WRITE), "fi_mr_bind");
  if (by_endpoint) check(fi_mr_enable(mr), "fi_mr_enable");
  return registered;
}

}  // namespace

Owned<fid_cntr> open_counter(const Rail& rail) {
  fi_cntr_attr attributes{};
  attributes.events = FI_CNTR_EVENTS_COMP;
  attributes.wait_obj = FI_WAIT_NONE;
  fid_cntr* counter = nullptr;
  check(fi_cntr_open(rail.domain(), &attributes, &counter, nullptr), "fi_cntr_open");
  return Owned<fid_cntr>(counter);
}

CountedLanding::CountedLanding(Station& station, const Slots& target, std::span<const Signal> signals)
    : station_(station) {
  const std::lock_guard lock(station.mutex);
  place_.index = station.arrivals.add(signals, target);
  place_.slot_bytes = target.slot_bytes;
  place_.depth = target.depth;
  place_.rails = static_cast<std::uint32_t>(signals.size());
  place_.notice = Notice::counter;
  for (std::size_t i = 0; i < signals.size(); ++i) {
    const std::size_t endpoint = endpoint_of(place_.index, i, station.rails.size());
    Rail& rail = *station.rails[endpoint];
    auto counter = open_counter(rail);
    auto memory = register_counted(rail, target.memory, counter.get());
    const bool by_offset = (rail.info().domain_attr->mr_mode & FI_MR_VIRT_ADDR) == 0;
    place_.rail[i].endpoint = static_cast<std::uint32_t>(endpoint);
    place_.rail[i].slots = by_offset ? 0 : reinterpret_cast<std::uintptr_t>(target.memory.data);
    place_.rail[i].slots_key = fi_mr_key(memory.get());
    lanes_.push_back({signals[i], std::move(counter), std::move(memory)});
  }
  station.counted.push_back(this);
}

CountedLanding::~CountedLanding() {
  const std::lock_guard lock(station_.mutex);
  std::erase(station_.counted, this);
  station_.arrivals.remove(place_.index);
  lanes_.clear();
}

Key CountedLanding::key() const {
  Key key;
  key.bytes.resize(sizeof place_);
  std::memcpy(key.bytes.data(), &place_, sizeof place_);
  return key;
}

void CountedLanding::look() {
  for (Lane& lane : lanes_) {
    const std::uint64_t arrived = fi_cntr_read(lane.arrivals.get());
    if (arrived == lane.seen) continue;
    lane.seen = arrived;
    raise_signal(lane.signal, arrived);
  }
}

std::string CountedLanding::describe() const {
  return station_.provider + ": lands in the target itself, where arrivals are counted";
}

TickBell::TickBell(Station& station, Owned<fid_cntr> counter) : station_(station), counter_(std::move(counter)) {
  station.bells.push_back(this);
}

TickBell::~TickBell() {
  const std::lock_guard lock(station_.mutex);
  std::erase(station_.bells, this);
}

void TickBell::look() {
  const std::uint64_t rung = word.value.load(std::memory_order_acquire);
  if (rung == counted_) return;
  add(rung - counted_);
  counted_ = rung;
}

void TickBell::add(std::uint64_t more) { fi_cntr_add(counter_.get(), more); }

int TriggeredPut::entries_for(const Place& place) noexcept {
  return place.slot_bytes == 0 ? kCreditsArmed : place.depth;
}

TriggeredPut::TriggeredPut(Station& station, const Routes& routes, const Slots& source, device::Watch& watch,
                           const Place& place)
    : RungPut(watch, nullptr), station_(station), source_(source), place_(place),
      work_(static_cast<std::size_t>(entries_for(place))) {
  const std::lock_guard lock(station.mutex);
  const Route& route = routes.at(place.rail[0].endpoint);
  rail_ = route.rail;
  peer_ = route.address;
  if (source.slot_bytes > rail_->info().ep_attr->max_msg_size)
    throw std::runtime_error("a slot is larger than a message of this provider may be");
  over_ = open_counter(*rail_);
  if (source.memory.bytes != 0) registered_ = rail_->registered(source.memory);
  rail_->know(*this);
  station.triggered.push_back(this);
  station.entries_left -= entries_for(place);
  use(make_bell(station, *rail_));
}

TriggeredPut::~TriggeredPut() {
  const std::lock_guard lock(station_.mutex);
  rail_->forget(*this);
  std::erase(station_.triggered, this);
  registered_.reset();
  dispose();
  if (ended() >= armed_) {
    station_.entries_left += entries_for(place_);
    over_.reset();
  } else {
    station_.orphaned_work.push_back(std::move(work_));
    station_.orphaned_counters.push_back(std::move(over_));
  }
}

/// Fires what nobody will ever ring for.
void TriggeredPut::dispose() {
  const std::uint64_t left = armed_ - std::min(armed_, rung()) - disposed_;
  if (left == 0) return;
  disposed_ += left;
  static_cast<TickBell&>(bell()).add(left);
}

std::shared_ptr<Doorbell> TriggeredPut::new_bell() {
  const std::lock_guard lock(station_.mutex);
  return make_bell(station_, *rail_);
}

void TriggeredPut::announce(std::uint64_t epoch, Range part) {
  if (watch().shut() || epoch > watch().done.value.load(std::memory_order_acquire) + work_.size()) return;
  // What a bell fires that others ring too could not be disposed of alone.
  if (shared()) return;
  const std::lock_guard lock(station_.mutex);
  if (epoch != armed_ + 1) return;  // in order: the lane arms those before it
  prepare(epoch, part);
  queue_armed();
}

bool TriggeredPut::arm(std::uint64_t epoch, Range part) {
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
  Work& work = work_[epoch % work_.size()];
  work = {};
  work.word = epoch;
  const Place::OfRail& there = place_.rail[0];
  if (place_.notice == Notice::word) {
    work.from = {&work.word, sizeof work.word};
    work.to = {there.word, sizeof work.word, there.word_key};
  } else {
    std::byte* const from = source_.memory.bytes == 0 ? nullptr : source_.at(epoch) + part.offset;
    const std::uint64_t slot = place_.slot_bytes * (epoch % static_cast<std::uint64_t>(place_.depth));
    work.from = {from, part.bytes};
    work.to = {there.slots + slot + part.offset, part.bytes, there.slots_key};
    work.desc = registered_ == nullptr ? nullptr : registered_->desc();
  }
  work.write.ep = rail_->endpoint();
  work.write.msg.msg_iov = &work.from;
  work.write.msg.desc = &work.desc;
  work.write.msg.iov_count = 1;
  work.write.msg.addr = peer_;
  work.write.msg.rma_iov = &work.to;
  work.write.msg.rma_iov_count = 1;
  // What is counted at its end has arrived, and so has all before it, whichever ends were counted.
  work.write.flags = FI_DELIVERY_COMPLETE;
  work.write.msg.context = &work.deferred.context;  // sockets insists on it, cxi does not mind
  work.deferred.threshold = threshold(epoch);
  work.deferred.triggering_cntr = static_cast<TickBell&>(bell()).counter();
  work.deferred.completion_cntr = over_.get();
  work.deferred.op_type = FI_OP_WRITE;
  work.deferred.op.rma = &work.write;
  armed_ = epoch;
}

/// In order. A threshold that is met already fires at once, so being late does no harm.
void TriggeredPut::queue_armed() {
  while (queued_ < armed_) {
    Work& work = work_[(queued_ + 1) % work_.size()];
    const int code = fi_control(&rail_->domain()->fid, FI_QUEUE_WORK, &work.deferred);
    if (code == -FI_EAGAIN || code == -FI_ENOSPC) return;  // `look` tries again
    if (code < 0 && broken_.empty()) {
      broken_ = "arming a write over " + station_.provider + " failed: " + text_of(code);
      verdict_ = base::Clock::now();
    }
    ++queued_;
    if (code < 0) ++failures_;
  }
}

std::uint64_t TriggeredPut::ended() const {
  return fi_cntr_read(over_.get()) + std::max(fi_cntr_readerr(over_.get()), failures_);
}

bool TriggeredPut::look() {
  queue_armed();
  const std::uint64_t over = ended() - disposed_;
  const std::uint64_t failures = std::max(fi_cntr_readerr(over_.get()), failures_);
  if (failures > 0 && broken_.empty() && !watch().failed()) {
    constexpr auto kMoment = std::chrono::seconds(1);  // as RmaPut::suspect
    broken_ = "a write over " + station_.provider + " failed";
    verdict_ = base::Clock::now() + kMoment;
  }
  if (!broken_.empty() && !watch().failed()) {
    if (base::Clock::now() >= verdict_) watch().fail(Code::transport, broken_);
    return true;  // its end waits for the verdict
  }
  std::uint64_t done = over;
  if (refused_ > done && done >= std::min(armed_, rung())) done = refused_;
  if (!base::reached(watch().done, done)) base::raise(watch().done, done, watch().done_parking);
  return queued_ < armed_;
}

bool TriggeredPut::failed(void* context, const std::string& why) {
  const auto is = [&](const Work& work) { return &work.deferred.context == context; };
  if (std::none_of(work_.begin(), work_.end(), is)) return false;
  ++failures_;
  if (broken_.empty() && disposed_ == 0) {
    broken_ = "a write over " + station_.provider + " failed: " + why;
    verdict_ = base::Clock::now() + std::chrono::seconds(1);
  }
  return true;
}

bool TriggeredPut::settled() {
  const std::lock_guard lock(station_.mutex);
  return ended() >= std::min(armed_, rung());
}

bool TriggeredPut::disarmed(bool key_closed) {
  const std::lock_guard lock(station_.mutex);
  if (key_closed) dispose();
  queue_armed();
  return ended() >= armed_;
}

std::string TriggeredPut::describe() const {
  return station_.provider + ": armed ahead, and written into the target when the " +
         (station_.rings_by_page ? "NIC's counter is rung" : "bell is rung") +
         (place_.notice == Notice::counter ? ", where arrivals are counted" : "");
}

}  // namespace sluice::backends::ofi
