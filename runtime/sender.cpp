// SPDX-License-Identifier: Apache-2.0
// The life of a put begins here: see `SenderCore::put`.
#include <sluice/channel.hpp>

#include <algorithm>

#include "runtime/handles.hpp"
#include "runtime/sender.hpp"

namespace sluice::detail {

/// A GPU's stream waits for its source on `visible_`, which failures poison, and not on `done`: closing reads that.
void SenderCore::reach_own(device::Driver& driver) {
  if (rung_ != nullptr && visible_ == nullptr) let_engine_poll(driver, done.value.load(std::memory_order_acquire));
}

backends::AfterTurn SenderCore::poll() {
  const std::uint64_t completed = done.value.load(std::memory_order_acquire);
  base::Progress& visible = *visible_.load();
  if (failed()) return backends::AfterTurn::nothing;
  const bool is_news = !base::reached(visible.word, completed);
  if (is_news) base::raise(visible.word, completed, visible.parking);
  if (completed >= acquired_.load(std::memory_order_relaxed)) return backends::AfterTurn::nothing;
  return is_news ? backends::AfterTurn::work : backends::AfterTurn::words;
}

std::optional<kernel::Out> SenderCore::by_kernel(device::Ledger& ledger, device::Driver* driver, std::uint64_t& fault) {
  if (stale_) return std::nullopt;
  kernel::Out out{};
  out.count = ledger.take<kernel::Count>();
  out.credit = runtime::as_kernels_see(*word_.word);
  out.target_slots = peer_depth_;
  out.slot_bytes = slot_bytes;
  out.source = opening.memory.data();
  out.source_slots = depth();
  out.done = runtime::as_kernels_see(done);
  out.fault = &fault;
  out.first = epoch();
  if (put_ == nullptr || closing.told()) return out;  // the peer has closed its end: nothing moves
  const auto what = put_->by_kernel(driver);
  if (!what) return std::nullopt;
  out.target = what->target.memory.data;
  out.target_stride = what->target.slot_bytes;
  out.rings = what->rings;
  out.armed = what->armed;
  out.counter = what->counter;
  out.raised = runtime::as_kernels_see(*what->raised);
  out.ahead = what->ahead;
  out.parts = what->parts;
  out.kept = what->kept;
  done_parking.silence();
  return out;
}

Slice SenderCore::acquire(Stream stream) {
  check_next();
  const std::uint64_t next = epoch() + 1;
  if (next > depth() && !is_free_here(stream, next)) acquire_on(stream, next, next);
  return slot(next, stream.kind());
}

void SenderCore::order_acquire(Stream stream, std::size_t count) {
  if (checked() && stream.kind() == Stream::Kind::host && epoch() + count <= depth())
    issue(
        stream, [](device::Lane) {}, [] {});
}

void SenderCore::acquire_on(Stream stream, std::uint64_t first, std::uint64_t last) {
  if (stream.kind() == Stream::Kind::program_order) {
    await_sources({}, first, last);
    return check();
  }
  if (!awaits_sources(stream)) return check();
  // Closing waits for puts, not for acquires, so the acquire itself keeps the channel's memory.
  issue(
      stream,
      [self = owner_of_work(), first, last](device::Lane lane) {
        static_cast<SenderCore&>(*self).await_sources(lane, first, last);
      },
      [&] { acquire_refused(stream); });
}

std::uint64_t SenderCore::waits_for() const noexcept {
  const std::uint64_t next = done.value.load(std::memory_order_acquire) + 1;
  const std::uint64_t credited = word_.word->value.load(std::memory_order_relaxed) + peer_depth_.load();
  if (next <= epoch() && credited < next) return next;
  // Rung for and not completed: the acquire waits for the epoch that will use the slot again.
  const bool rung = visible_ != nullptr && rung_->epoch_of(rung_->bell().rung()) >= next;
  if (!rung || acquired_.load(std::memory_order_relaxed) < next) return 0;
  return next + depth();
}

base::EndCounts SenderCore::counts() const noexcept {
  const std::uint64_t credit = word_.word->value.load(std::memory_order_relaxed);
  return {epoch(), done.value.load(std::memory_order_acquire), credit < base::kPoison ? credit : 0, peer_depth_.load()};
}

/// The oldest put that has not completed is the one that others wait behind.
std::pair<base::Lack, std::uint64_t> SenderCore::lacks(std::uint64_t epoch) const noexcept {
  const base::EndCounts here = counts();
  return here.released + here.depth < here.completed + 1 ? std::pair(base::Lack::release, here.released + 1)
                                                         : std::pair(base::Lack::completion, epoch);
}

void SenderCore::refuse_part(backends::Range part) const {
  throw error(Code::bad_argument, epoch() + 1,
              std::to_string(part.bytes) + " bytes from offset " + std::to_string(part.offset) +
                  " do not lie inside a slot of " + std::to_string(slot_bytes));
}

void SenderCore::put(Stream stream, backends::Range part) {
  if (part.offset > slot_bytes || part.bytes > slot_bytes - part.offset) refuse_part(part);
  const std::uint64_t epoch = begin();
  announce(epoch, part);
  issue<true>(
      stream, [ this, epoch, part ](device::Lane lane) __attribute__((always_inline)) { fire(lane, epoch, part); },
      [this, stream] { put_refused(stream); }, [this, epoch, part] { return is_brief(epoch, part); });
  if (stream.kind() != Stream::Kind::host) check();
}

bool SenderCore::fire_with_credit(device::Lane lane, std::uint64_t epoch, backends::Range part) {
  const auto& credit = lane.host->held_back();
  const bool to_same = credit.rank == &services() && credit.peer == opening.key.world_peer;
  const bool may = to_same && part.bytes <= kLongestCopy && fires_by_stores() && shares_line() && has_credit(epoch);
  if (may) {
    report_failure(lane);
    tell_of_firing(lane, epoch, part);
    mapped_->enqueue_and_let_go(lane, epoch, part);
  } else {
    lane.host->let_go();
  }
  return may;
}

void SenderCore::await_credit_slowly(device::Lane lane, std::uint64_t epoch) {
  const std::uint64_t depth = peer_depth_.load(std::memory_order_relaxed);
  const device::Wait credit{word_.word, epoch - depth, word_.parking, epoch, "wait for credit"};
  device::wait(lane, credit, *this, helper());
  (void)look_for_credit(epoch - depth);
}

base::Clock::duration SenderCore::waited(const device::Wait& wait, base::Clock::duration so_far, Timeout limit,
                                         base::WaitNote& note) noexcept {
  // The engine calls this for waits of a GPU's stream, which have no word here.
  if (wait.word != word_.word || credit_limit_ == nullptr) return ChannelEnd::waited(wait, so_far, limit, note);
  const base::Clock::duration within = credit_limit_->within;
  if (so_far < within) return std::min(ChannelEnd::waited(wait, so_far, limit, note), within - so_far);
  if (!base::reached(*wait.word, wait.at_least)) fail_without_credit(wait.epoch);
  return base::Clock::duration::zero();
}

void SenderCore::fail_without_credit(std::uint64_t epoch) noexcept {
  const std::string what = credit_limit_->mistake(epoch);
  const Error mistake(Code::misuse, opening.rank, opening.peer, credit_limit_->tag, epoch, what);
  record(std::make_shared<device::Failure>(mistake, services().failures.cause_of(Code::misuse, what, opening)), what,
         true);
}

bool SenderCore::credited() {
  check_free();
  check();
  const std::uint64_t next = epoch() + 1;
  const auto closed = [&] { return next > limit_.load(std::memory_order_acquire); };
  const bool is = look([&] { return may_put(); });
  check();
  if (closed()) refuse(next);
  return is;
}

void SenderCore::await_sources(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  fail_if_stopped(lane);
  const std::uint64_t sent = last - depth();
  base::Progress* const visible = lane.gpu == nullptr ? nullptr : visible_.load();
  if (visible != nullptr) {
    acquired_.store(sent, std::memory_order_relaxed);
    services().engine.wake();  // it polls for that from now on, also if the program enqueues nothing else
  }
  const device::Wait free{visible == nullptr ? &done : &visible->word, sent, &done_parking, last, "wait for source"};
  device::wait(lane, free, *this, helper());
  if constexpr (base::races::kOn) {
    for (std::uint64_t epoch = first; lane.gpu == nullptr && epoch <= last; ++epoch)
      races_.taken_back(slots.index(epoch));
  }
  if (lane.gpu != nullptr) gpu_use()->mark(lane);
  report_failure(lane);
}

void SenderCore::drain(base::Limit& limit) {
  if (!await_landed(complete(limit), limit)) not_drained();
  check();
}

void SenderCore::refuse_enqueued() {
  if (!base::reached(done, last_possible(*closing.theirs))) return;
  record(Code::misuse,
         "put " + std::to_string(epoch()) + " is enqueued, but rank " + std::to_string(opening.peer) +
             " closed its end after crediting " + std::to_string(closing.theirs->credited),
         false);
}

std::string SenderCore::state() const {
  const std::uint64_t credit = word_.word->value.load(std::memory_order_relaxed);
  const std::string text = "enqueued " + std::to_string(epoch()) + " puts, fired " +
                           std::to_string(done.value.load(std::memory_order_relaxed));
  if (!connected()) return text + ", not connected";  // the peer's depth is not known
  return text + ", credited " + (credit >= base::kPoison ? "poison" : std::to_string(credit)) + " of depth " +
         std::to_string(peer_depth_.load(std::memory_order_relaxed)) + ", connected";
}

}  // namespace sluice::detail

namespace sluice {

using detail::not_empty;
using detail::usable_here;
using runtime::Verb;
using Use = runtime::ChannelEnd::Use;

namespace {

detail::SenderCore& sender(runtime::ChannelEnd& end) { return static_cast<detail::SenderCore&>(end); }

// With the verbs themselves in one function each, a message makes fewer calls, and so fewer stores.
[[gnu::noinline]] void bind_and_put(detail::SenderCore& core, Stream stream, backends::Range part, const void* from) {
  const Use use(core, stream, Verb::put, from);
  core.put(stream, part);
}

}  // namespace

Slice Sender::acquire(Stream stream) {
  const base::races::Called here;
  auto& core = sender(not_empty(end_));
  if (core.bound_to(stream)) [[likely]]
    return core.acquire(stream);
  const Use use(core, stream, Verb::acquire, __builtin_return_address(0));
  core.order_acquire(stream);
  return core.acquire(stream);
}
void Sender::put(Stream stream) {
  const base::races::Called here;
  auto& core = sender(not_empty(end_));
  if (core.bound_to(stream)) [[likely]]
    return core.put(stream, core.whole());
  bind_and_put(core, stream, core.whole(), __builtin_return_address(0));
}
void Sender::put(Stream stream, std::size_t offset, std::size_t bytes) {
  const base::races::Called here;
  auto& core = sender(not_empty(end_));
  if (core.bound_to(stream)) [[likely]]
    return core.put(stream, {offset, bytes});
  bind_and_put(core, stream, {offset, bytes}, __builtin_return_address(0));
}
DeviceSender Sender::on_device(Stream stream) {
  const Use use(usable_here(end_), Verb::on_device, __builtin_return_address(0));
  return sender(*end_).on_device(stream);
}
void Sender::drain(std::optional<Timeout> timeout) {
  const Use use(usable_here(end_), Verb::drain, __builtin_return_address(0));
  sender(*end_).drain(timeout);
}
bool Sender::credited() {
  const Use use(usable_here(end_), Verb::credited, __builtin_return_address(0));
  return sender(*end_).credited();
}

}  // namespace sluice
