// SPDX-License-Identifier: Apache-2.0
#include <sluice/channel.hpp>

#include <algorithm>
#include <memory>
#include <optional>

#include "runtime/handles.hpp"
#include "runtime/receiver.hpp"

namespace sluice::detail {

ReceiverCore::~ReceiverCore() {
  stop_polling();
  if (copied_ != nullptr) base::give_back(*copied_);
  base::give_back(waited_);
}

std::optional<kernel::In> ReceiverCore::by_kernel(device::Ledger& ledger, device::Driver* driver,
                                                  std::uint64_t& fault) {
  kernel::In in{};
  if (stale_ || opening.options.lengths || more_words_.size() + 1 > kernel::In::kMostRails ||
      (visible_ == nullptr && landing_ && !lands_in_target()))
    return std::nullopt;
  in.waits = ledger.take<kernel::Count>();
  in.releases = ledger.take<kernel::Count>();
  in.signals[in.rails++] = runtime::as_kernels_see(visible_ == nullptr ? *word_.word : visible_.load()->word);
  if (visible_ == nullptr) {
    for (const auto& word : more_words_) in.signals[in.rails++] = runtime::as_kernels_see(*word.word);
  }
  in.passed = runtime::as_kernels_see(waited_.word);
  in.target = opening.memory.data();
  in.slots = depth();
  in.slot_bytes = slot_bytes;
  in.done = runtime::as_kernels_see(done);
  in.fault = &fault;
  in.first = epoch();
  word_.parking->silence();
  done_parking.silence();
  if (put_ == nullptr || closing.told()) return in;  // the peer has closed its end: it needs no credit
  const auto what = put_->by_kernel(driver);
  if (!what) return std::nullopt;
  in.rings = what->rings;
  in.armed = what->armed;
  in.counter = what->counter;
  in.raised = runtime::as_kernels_see(*what->raised);
  in.ahead = what->ahead;
  return in;
}

void ReceiverCore::let_kernels_drive(const kernel::In& in) {
  if (visible_ != nullptr) request_copies(kNoLimit);
  let_kernels_count(*in.waits, *in.releases, *in.fault);
}

Slice ReceiverCore::wait(Stream stream) {
  const std::uint64_t epoch = begin();
  issue(
      stream, [ this, epoch ](device::Lane lane) __attribute__((always_inline)) { land(lane, epoch); },
      [this, stream] { wait_refused(stream); });
  if (stream.kind() != Stream::Kind::host) check();
  return slot(epoch, stream.kind());
}

void ReceiverCore::await_copied(device::Lane lane, std::uint64_t epoch) {
  request_copies(epoch);
  lane.gpu->wait(visible_.load()->word, epoch);
  count_wait(lane);
}

void ReceiverCore::reach_own(device::Driver& driver) {
  runtime::reach_progress(driver, waited_.word);
  if (landing_ == nullptr || lands_in_target() || visible_ != nullptr) return;
  // A stream cannot copy what landed: it was given its work long before, when it was not known what would land where.
  const auto gpu = slots.memory.driver == nullptr ? std::nullopt : driver.find(slots.memory.data);
  if (gpu) landing_->reach_from(driver);
  if (copied_ == nullptr) copied_ = runtime::progress_for(driver).release();
  copied_.load()->word.value.store(epoch());
  if (gpu) copy_stream_.emplace(driver, gpu->device, copied_.load()->word);
  requested_.store(epoch());
  started_.store(epoch());
  let_engine_poll(driver, epoch());
}

void ReceiverCore::request_copies(std::uint64_t last) {
  requested_.store(last);
  services().engine.heard(backends::Haste::now);
}

backends::AfterTurn ReceiverCore::poll() {
  using backends::AfterTurn;
  if (copy_stream_ && !copy_stream_->has_written()) return AfterTurn::work;
  const std::uint64_t last = requested_.load();
  const std::uint64_t first = started_.load() + 1;
  std::uint64_t next = first;
  // Free once its release has completed. The peer may put before this end learns that.
  const auto is_free = [&] { return next <= depth() || base::reached(done, next - depth()); };
  for (; next <= last && landed(next) && is_free() && !failed(); ++next) {
    started_.store(next);  // first: either closing after a failure sees this, or this sees the failure
    if (failed_in_order()) {
      started_.store(next - 1);
      break;
    }
    copy_to_slot(next);
  }
  if (next > first) return AfterTurn::work;
  return next > last || failed() ? AfterTurn::nothing : AfterTurn::words;
}

void ReceiverCore::copy_to_slot(std::uint64_t epoch) {
  base::Progress& visible = *visible_.load();
  if (copy_stream_) {
    return copy_stream_->give(*this, epoch, [&](device::Lane lane) {
      landing_->take(lane, *this, epoch);
      lane.gpu->write(visible.word, epoch);
    });
  }
  landing_->take({}, *this, epoch);
  if (!failed()) base::raise(visible.word, epoch, visible.parking);
  base::raise(copied_.load()->word, epoch, copied_.load()->parking);
}

std::uint64_t ReceiverCore::waits_for() const noexcept {
  const std::uint64_t next = waits_completed() + 1;
  const base::Progress* const visible = visible_;
  const bool came = visible == nullptr ? landed(next) : base::reached(visible->word, next);
  const bool begun = begun_ == nullptr || *begun_ >= next;
  return next <= epoch() && !came && begun ? next : 0;
}

std::pair<base::Lack, std::uint64_t> ReceiverCore::lacks(std::uint64_t epoch) const noexcept {
  const std::uint64_t oldest = std::min(epoch, waits_completed() + 1);
  return landed(oldest) ? std::pair(base::Lack::completion, epoch) : std::pair(base::Lack::put, oldest);
}

/// Seldom looks at the signal, whose line would have to travel each time that it rises.
bool ReceiverCore::spin_for_epoch(std::uint64_t epoch) {
  constexpr int kSpins = 400;  // as many as base::wait_until has without a pause
  constexpr int kBetweenLooks = 32;
  for (int i = 1; i <= kSpins && !failed(); ++i) {
    if (landing_->arrived(epoch) || (i % kBetweenLooks == 0 && look_for_signal(epoch))) return true;
    landing_->help(epoch);
  }
  return false;
}

/// The peer's credit of the epoch before may leave before the copy. A look in between takes the line of credit and
/// signal away from the peer, which must fetch it again.
void ReceiverCore::pause_for_signal(std::uint64_t epoch) const noexcept {
  constexpr int kLooks = 24;  // about 1 us, like the looks without a pause of base::wait_until
  if (slot_bytes < kLongCopy || helper() != nullptr) return;
  for (int i = 0; i < kLooks && !base::reached(*word_.word, epoch); ++i) base::pause();
}

void ReceiverCore::await_signal(device::Lane lane, std::uint64_t epoch) {
  const auto wait = [&](const backends::Signal& word) {
    device::wait(lane, {word.word, epoch, word.parking, epoch}, *this, helper());
  };
  if (lane.gpu == nullptr && lands_around() && landing_->shows_epochs() && spin_for_epoch(epoch)) return;
  if (lane.gpu == nullptr && !lands_around()) pause_for_signal(epoch);
  wait(word_);
  if (failed()) return;  // perhaps before the put landed
  for (const auto& word : more_words_) wait(word);
  (void)look_for_signal(epoch);
}

void ReceiverCore::refuse_release(std::uint64_t epoch) const {
  misuse(epoch, "release without a wait: all of the " + std::to_string(epoch - 1) + " epochs waited for are released");
}

void ReceiverCore::release(Stream stream) {
  check();
  const std::uint64_t epoch = begin_release();
  announce(epoch, {});
  issue(
      stream, [this, epoch](device::Lane lane) { give_back(lane, epoch); }, [this, stream] { release_refused(stream); },
      [this] { return fires_by_stores(); });
}

bool ReceiverCore::goes_with_next_put(device::Lane lane, std::uint64_t epoch) {
  if (base::trace::on() || !fires_by_stores() || !shares_line() || !lane.host->may_hold_back()) return false;
  constexpr auto give = [](HostStream::Impl* stream, void* end, std::uint64_t credited) {
    static_cast<ReceiverCore*>(end)->enqueue(device::Lane{stream}, credited, {});
  };
  lane.host->hold_back({give, this, epoch, &services(), opening.key.world_peer});
  return true;
}

void ReceiverCore::release_in(device::Lane lane) {
  check();
  if (gpu_use() != nullptr) misuse(epoch(), "the receiver is used with streams of a GPU, which release what they read");
  const std::uint64_t epoch = begin_release();
  announce(epoch, {});
  give_back(lane, epoch);
}

void ReceiverCore::waits_refused(Stream stream, std::uint64_t count) noexcept {
  given_waits_ = epoch() - refused_waits_ - waited_by_host_;
  if (!gpu_use()->raise_behind(stream, waited_.word, given_waits_)) refused_waits_ += count;
}

std::uint64_t ReceiverCore::complete(base::Limit& limit) {
  const std::uint64_t last = ChannelEnd::complete(limit);
  if (copied_ == nullptr) return last;  // a stream may see a copy before the copy stream reports that it has completed
  const auto ready = [this] { return all_copied() || failed(); };
  if (!await_in_host(copied_.load()->parking, ready, limit, "drains")) not_drained();
  check();
  return last;
}

std::optional<Slice> ReceiverCore::wait_for(Timeout timeout) {
  check_free();
  check();
  const std::uint64_t next = epoch() + 1;
  if (!await_by_host(next, timeout)) return std::nullopt;
  take_by_host(next, next);
  return checked_slot(slot(next, Stream::Kind::host), next);
}

bool ReceiverCore::await_by_host(std::uint64_t next, Timeout timeout) {
  std::optional<base::Limit> limit;  // one look reads no clock
  if (timeout > Timeout::zero()) limit.emplace(timeout);
  if (warning_.epoch != next && limit) warning_ = new_warning(next, "waits");
  if (limit) warning_.note.sleeps_again();
  const auto in_time = [&](base::Parking& parking, auto here) {
    const auto over = [&] { return here() || failed() || all_taken(); };
    if (!limit) return look(over);
    const auto ready = [&] {
      if (over()) return true;
      if (visible_ == nullptr) assist(next);  // else the engine's thread may be copying out what has landed
      return false;
    };
    return await_in_host(parking, ready, *limit, warning_);
  };
  const auto here = [&] { return (visible_ == nullptr && connected() && has_arrived(next)) || landed(next); };
  bool came = in_time(*word_.parking, here);
  if (came && visible_ != nullptr && landed(next)) {
    if (requested_.load() < next) request_copies(next);  // before its wait is counted
    came = in_time(visible_.load()->parking, [&] { return base::reached(visible_.load()->word, next); });
  }
  if (came) {
    warning_.note.end();
  } else if (timeout > Timeout::zero()) {
    warning_.note.polled();
  }
  check();
  return came && !all_taken();
}

void ReceiverCore::take_by_host(std::uint64_t first, std::uint64_t last) {
  await_connected({}, first);  // the peer may have connected, and put, before this end connects
  const std::uint64_t count = last - first + 1;
  begin(count);
  const base::trace::Span slice("wait", traced, last, count * slot_bytes, base::trace::Arrow::ends);
  for (std::uint64_t epoch = first; visible_ == nullptr && epoch <= last; ++epoch) {
    take(epoch);
    tell_of_arrival(epoch);
  }
  waited_by_host_.store(waited_by_host_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  check();
}

std::size_t ReceiverCore::bytes(std::uint64_t epoch) const {
  if (!opening.options.lengths) misuse(epoch, "bytes of a receiver that was opened without ChannelOptions::lengths");
  check_driven();
  if (epoch == 0 || epoch > waits_completed()) misuse(epoch, "bytes before a wait has completed");
  // The peer may overwrite the length from the release on.
  const auto bytes = static_cast<const runtime::LengthsLanding&>(*landing_).bytes_of(epoch);
  if (!bytes || base::reached(done, epoch)) misuse(epoch, "bytes of an epoch that is released");
  return *bytes;
}

bool ReceiverCore::may_take() noexcept {
  const std::uint64_t next = epoch() + 1;
  if (failed() || next > limit_.load(std::memory_order_acquire)) return true;
  if (!landed(next)) return false;
  if (visible_ == nullptr) return true;
  if (requested_.load() < next) request_copies(next);
  return base::reached(visible_.load()->word, next);
}

bool ReceiverCore::all_taken() const noexcept {
  // First: a failure sets the limit to 0 after it is recorded.
  const bool none_follows = epoch() >= limit_.load(std::memory_order_acquire);
  return none_follows && !failed() && !closed_here();
}

void ReceiverCore::add_places(std::vector<base::Parking*>& places) const {
  places.push_back(word_.parking);
  if (visible_ != nullptr) places.push_back(&visible_.load()->parking);
}

bool ReceiverCore::passed() const noexcept {
  const bool waited = waits_completed() >= epochs_.begun() && all_copied();
  return (waited || gpu_lost()) && written();
}

bool ReceiverCore::at_end() const {
  const auto failure = this->failure();
  if (failure != nullptr && failure->error().code() != Code::closed) failure->raise();
  return failure != nullptr || all_taken();
}

void ReceiverCore::refuse_enqueued() {
  const std::uint64_t last = last_possible(*closing.theirs);
  if (waits_completed() < last) return;
  record(Code::closed,
         "epoch " + std::to_string(epoch()) + " is waited for, but rank " + std::to_string(opening.peer) +
             " closed its end after epoch " + std::to_string(last),
         false);
}

std::string ReceiverCore::state() const {
  const std::uint64_t signal = word_.word->value.load(std::memory_order_relaxed);
  return "enqueued " + std::to_string(epoch()) + " waits, landed " +
         (signal >= base::kPoison ? "poison" : std::to_string(signal)) +
         (copied_ == nullptr ? "" : ", copied to the GPU " + std::to_string(copied_.load()->word.value.load())) +
         ", waited " + std::to_string(waits_completed()) + ", released " + std::to_string(released()) + ", " +
         (connected() ? "connected" : "not connected");
}

}  // namespace sluice::detail

namespace sluice {

using detail::not_empty;
using detail::usable_here;
using runtime::Verb;
using Use = runtime::ChannelEnd::Use;

namespace {

detail::ReceiverCore& receiver(runtime::ChannelEnd& end) { return static_cast<detail::ReceiverCore&>(end); }

}  // namespace

Slice Receiver::wait(Stream stream) {
  const base::races::Called here;
  auto& core = receiver(not_empty(end_));
  if (core.bound_to(stream)) [[likely]]
    return core.wait(stream);
  const Use use(core, stream, Verb::wait, __builtin_return_address(0));
  const Slice slot = core.wait(stream);
  return core.checked_slot(slot, core.epoch());
}
void Receiver::release(Stream stream) {
  const base::races::Called here;
  auto& core = receiver(not_empty(end_));
  if (core.bound_to(stream)) [[likely]]
    return core.release(stream);
  const Use use(core, stream, Verb::release, __builtin_return_address(0));
  core.release(stream);
}
DeviceReceiver Receiver::on_device(Stream stream) {
  const Use use(usable_here(end_), Verb::on_device, __builtin_return_address(0));
  return receiver(*end_).on_device(stream);
}
std::size_t Receiver::bytes(std::uint64_t epoch) const { return receiver(usable_here(end_)).bytes(epoch); }
std::size_t Receiver::bytes() const { return receiver(usable_here(end_)).bytes(); }
std::optional<Slice> Receiver::test() {
  const base::races::Called here;
  auto& core = receiver(usable_here(end_));
  if (core.surely_awaits()) return std::nullopt;
  const Use use(core, Verb::test, __builtin_return_address(0));
  return core.wait_for(Timeout::zero());
}
bool Receiver::closed() const { return receiver(usable_here(end_)).at_end(); }
std::optional<Slice> Receiver::wait_for(Timeout timeout) {
  const base::races::Called here;
  const Use use(usable_here(end_), Verb::wait_for, __builtin_return_address(0));
  return receiver(*end_).wait_for(timeout);
}

}  // namespace sluice
