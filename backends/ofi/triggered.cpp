// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/triggered.hpp"

#include <algorithm>
#include <stdexcept>

#include "backends/ofi/page_bell.hpp"

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

}  // namespace

Owned<fid_cntr> open_counter(const Rail& rail) {
  fi_cntr_attr attributes{};
  attributes.events = FI_CNTR_EVENTS_COMP;
  attributes.wait_obj = FI_WAIT_NONE;
  fid_cntr* counter = nullptr;
  check(fi_cntr_open(rail.domain(), &attributes, &counter, nullptr), "fi_cntr_open");
  return Owned<fid_cntr>(counter);
}

TickBell::TickBell(Station& station, Owned<fid_cntr> counter) : station_(station), counter_(std::move(counter)) {
  station.bells.push_back(this);
}

TickBell::~TickBell() {
  const std::lock_guard lock(station_.mutex);
  std::erase(station_.bells, this);
  counter_.reset();
}

/// What sockets has no room for when it is to fire it (2000 writes under way) waits until its counter is touched again,
/// if only by nothing (test: Bursts.*).
bool TickBell::look() {
  const std::uint64_t rung = word.value.load(std::memory_order_acquire);
  const bool nudged = std::exchange(nudged_, false);
  if (rung <= counted_ && !nudged) return false;
  const std::uint64_t before = std::exchange(counted_, std::max(rung, counted_));
  add(counted_ - before);
  return counted_ != before;
}

void TickBell::add(std::uint64_t more) { fi_cntr_add(counter_.get(), more); }

int TriggeredPut::entries_for(const Place& place) noexcept {
  return place.slot_bytes == 0 ? kCreditsArmed : place.depth;
}

ArmedWork::ArmedWork(Station& station, Rail& rail, int entries)
    : station_(station), rail_(rail), entries_(entries), over_(open_counter(rail)),
      work_(static_cast<std::size_t>(entries)) {
  rail.know(*this);
  station.entries_left -= entries;
}

ArmedWork::~ArmedWork() {
  const std::lock_guard lock(station_.mutex);
  rail_.forget(*this);
  source_.reset();
  over_.reset();
}

bool ArmedWork::queue(std::uint64_t epoch) {
  const int code = fi_control(&rail_.domain()->fid, FI_QUEUE_WORK, &of(epoch).deferred);
  if (code == -FI_EAGAIN || code == -FI_ENOSPC) return false;
  queued_ = epoch;
  if (code < 0) failed(&of(epoch).deferred.context, text_of(code));
  return true;
}

std::uint64_t ArmedWork::failures() const { return std::max(fi_cntr_readerr(over_.get()), failures_); }

std::uint64_t ArmedWork::ended() const { return fi_cntr_read(over_.get()) + failures(); }

bool ArmedWork::failed(void* context, const std::string& why) {
  const auto is = [&](const Work& work) { return &work.deferred.context == context; };
  if (std::none_of(work_.begin(), work_.end(), is)) return false;
  ++failures_;
  if (why_.empty()) why_ = why;
  return true;
}

/// A failure is counted before the queue tells of it. So the work stays for one more look at the queue: it is not to be
/// taken for that of another put, whose memory may be the same.
bool ArmedWork::look() {
  const bool over = ended() >= queued_;
  if (over) station_.entries_left += std::exchange(entries_, 0);
  return std::exchange(was_over_, over);
}

TriggeredPut::TriggeredPut(Station& station, Destination& there, const Slots& source, device::Watch& watch,
                           const Target& place)
    : RungPut(Fired::by_nic, watch, nullptr, source.slot_bytes), station_(station), there_(there), source_(source),
      place_(place) {
  const std::lock_guard lock(station.mutex);
  route_ = &there.route(place.rail[0].endpoint);
  rail_ = route_->rail;
  if (source.memory.bytes != 0) registered_ = rail_->registered(source.memory);
  use(make_bell(station, *rail_));
  work_ = std::make_unique<ArmedWork>(station, *rail_, entries_for(place));
  there.know(*this);
  station.triggered.push_back(this);
}

TriggeredPut::~TriggeredPut() {
  const std::lock_guard lock(station_.mutex);
  there_.forget(*this);
  std::erase(station_.triggered, this);
  dispose();
  if (registered_ != nullptr) rail_->disown(*registered_);
  work_->keep(own_bell(), std::move(registered_));
  work_->look();
  station_.left_work.push_back(std::move(work_));
}

/// Fires what nobody will ever ring for: puts, whose memory the peer has closed; and words alone, whose memory is never
/// closed, to tell again what they have told already.
void TriggeredPut::dispose() {
  const std::uint64_t fired = std::min(armed_, rung()) + disposed_;
  if (armed_ <= fired) return;
  const std::uint64_t left = armed_ - fired;
  for (std::uint64_t epoch = rung() + 1; epoch <= armed_; ++epoch) work_->of(epoch).word = rung();
  disposed_ += left;
  static_cast<TickBell&>(bell()).add(left);
}

std::shared_ptr<Doorbell> TriggeredPut::new_bell() {
  const std::lock_guard lock(station_.mutex);
  return make_bell(station_, *rail_);
}

bool TriggeredPut::announce(std::uint64_t epoch, Range part) {
  if (epoch > watch().done.value.load(std::memory_order_acquire) + work_->size()) return false;
  // What a bell fires that others ring too could not be disposed of alone.
  if (shared()) return false;
  const std::lock_guard lock(station_.mutex);
  if (watch().shut() || epoch != armed_ + 1) return false;  // in order: the lane arms those before it
  prepare(epoch, part);
  queue_armed();
  return true;
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
  Work& work = work_->of(epoch);
  work = {};
  work.word = epoch;
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
  // What is counted at its end has arrived, and so has all before it, whichever ends were counted.
  work.write.flags = FI_DELIVERY_COMPLETE;
  work.write.msg.context = &work.deferred.context;  // sockets insists on it, cxi does not mind
  work.deferred.threshold = threshold(epoch);
  work.deferred.triggering_cntr = static_cast<TickBell&>(bell()).counter();
  work.deferred.completion_cntr = work_->counter();
  work.deferred.op_type = FI_OP_WRITE;
  work.deferred.op.rma = &work.write;
  armed_ = epoch;
}

/// In order. A threshold that is met already fires at once, so being late does no harm: `look` tries again.
void TriggeredPut::queue_armed() {
  while (work_->queued() < armed_ && work_->queue(work_->queued() + 1)) {
  }
}

void TriggeredPut::path_lost(const Route& route, const std::string& why) {
  if (&route != route_) return;
  watch().fail(Code::transport, why);
  loss_.raise();
}

void TriggeredPut::suspect() {
  if (!suspicion_.none() || disposed_ != 0) return;
  suspicion_.raise("a write over " + station_.provider + " from " + route_->text + " failed" +
                   (work_->why().empty() ? "" : ": " + work_->why()) + " (" + kChosenBy + ")");
}

/// Of what was rung for. A GPU stores to the counter first and then the word, and may be held up in between: until the
/// word is there, which nobody else may be given meanwhile, the put is not over, however far the NIC is (test:
/// Bells.*).
std::uint64_t TriggeredPut::over() {
  const std::uint64_t ended = loss_.over() || disposed_ != 0 ? armed_ : work_->ended();
  return std::min(ended, rung());
}

bool TriggeredPut::look() {
  queue_armed();
  if (work_->failures() > 0) suspect();
  if (!suspicion_.none() && !watch().failed()) {
    suspicion_.judge(watch());
    return true;  // its end waits for the verdict
  }
  const std::uint64_t never = std::max(refused_, given_up());  // first: what is rung meanwhile may be armed
  std::uint64_t done = over();
  // What was not armed, and never will be, is over behind what was.
  if (done >= std::min(armed_, rung())) done = std::max(done, never);
  if (!base::reached(watch().done, done)) base::raise(watch().done, done, watch().done_parking);
  // A NIC looks unasked. Not towards the dead: the provider would try to connect.
  if (!station_.rings_by_page && work_->ended() < std::min(armed_, rung() + disposed_) && !loss_.raised())
    static_cast<TickBell&>(bell()).nudge();
  return work_->queued() < armed_;
}

/// A word that was armed and not rung for is disposed of now, while it is no other channel's.
bool TriggeredPut::settled() {
  const std::lock_guard lock(station_.mutex);
  if (place_.notice == Notice::word) dispose();
  queue_armed();
  return work_->ended() >= std::min(armed_, rung() + disposed_);
}

bool TriggeredPut::disarmed(bool key_closed) {
  const std::lock_guard lock(station_.mutex);
  if (key_closed) dispose();
  queue_armed();
  return work_->ended() >= armed_;
}

std::string TriggeredPut::describe() const {
  const std::string by = static_cast<const TickBell&>(bell()).rung_for_gpus_by();
  return station_.provider + ": armed ahead, and written into the target when the " +
         (station_.rings_by_page ? "NIC's counter is rung" : "bell is rung") + (by.empty() ? "" : " by the " + by) +
         (place_.notice == Notice::counter ? ", where arrivals are counted" : "");
}

}  // namespace sluice::backends::ofi
