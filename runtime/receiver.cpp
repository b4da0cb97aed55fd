// SPDX-License-Identifier: Apache-2.0
#include <sluice/channel.hpp>

#include <algorithm>
#include <memory>

#include "runtime/handles.hpp"
#include "runtime/kept.hpp"
#include "runtime/receiver.hpp"

namespace sluice::detail {

using runtime::Final;

ReceiverCore::~ReceiverCore() {
  stop_taking();
  if (taken_ != nullptr) base::give_back(*taken_);
  if (brought_ != nullptr) base::give_back(*brought_);
  base::give_back(landed_);
}

void ReceiverCore::stop_taking() noexcept {
  if (std::exchange(takes_, false)) services().engine.forget(static_cast<runtime::Engine::Taker&>(*this));
}

std::string ReceiverCore::why_refused(std::uint64_t epoch) const {
  return "epoch " + std::to_string(epoch) + " will never come: rank " + std::to_string(opening.peer) +
         " has closed its end";
}

std::optional<kernel::In> ReceiverCore::by_kernel(device::Ledger& ledger, device::Driver* driver,
                                                  std::uint64_t& fault) {
  kernel::In in{};
  if (stale_ || more_words_.size() + 1 > kernel::In::kMostRails ||
      (taken_ == nullptr && landing_ && !lands_in_target()))
    return std::nullopt;
  in.waits = ledger.take<kernel::Count>();
  in.releases = ledger.take<kernel::Count>();
  in.signals[in.rails++] = runtime::as_kernels_see(taken_ == nullptr ? *word_.word : taken_.load()->word);
  if (taken_ == nullptr) {
    for (const auto& word : more_words_) in.signals[in.rails++] = runtime::as_kernels_see(*word.word);
  }
  in.passed = runtime::as_kernels_see(landed_.word);
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

DeviceReceiver ReceiverCore::on_device(Stream stream) {
  complete({});
  return DeviceReceiver(hand_to_kernels(
      stream, [this](auto&... with) { return by_kernel(with...); }, [this](const auto& in) { let_kernels_wait(in); }));
}

void ReceiverCore::let_kernels_wait(const kernel::In& in) {
  if (taken_ != nullptr) have_taken(kNoLimit);
  let_kernels_count(*in.waits, *in.releases, *in.fault);
}

Slice ReceiverCore::wait(Stream stream) {
  bind(stream);
  const std::uint64_t epoch = begin();
  issue(
      stream, [this, epoch](device::Lane lane) { land(lane, epoch); }, [&] { wait_refused(stream); });
  if (stream.kind() != Stream::Kind::host) check();
  return slot(epoch, stream.kind());
}

void ReceiverCore::land(device::Lane lane, std::uint64_t epoch) {
  fail_if_stopped(lane);
  await_connected(lane);
  if (!base::trace::on()) [[likely]]
    return await_and_take(lane, epoch);
  device::trace_slice(lane, "wait", traced, epoch, slot_bytes, base::trace::Arrow::ends,
                      [this, lane, epoch] { await_and_take(lane, epoch); });
}

void ReceiverCore::await_and_take(device::Lane lane, std::uint64_t epoch) {
  if (lane.gpu != nullptr && taken_ != nullptr) {
    have_taken(epoch);
    lane.gpu->wait(taken_.load()->word, epoch);
    return pass(lane);
  }
  if (epoch > signal_seen_) await_signal(lane, epoch);
  take(epoch);
  report_failure(lane);
  pass(lane);
}

void ReceiverCore::pass(device::Lane lane) {
  std::atomic<std::uint64_t>& passed = landed_.word.value;
  if (lane.gpu != nullptr) return lane.gpu->write(landed_.word, ++given_);
  passed.store(passed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void ReceiverCore::reach_own(device::Driver& driver) {
  runtime::reach_progress(driver, done);
  runtime::reach_progress(driver, landed_.word);
  if (landing_ == nullptr || lands_in_target() || takes_) return;
  // How much has landed where is known when it has: a stream that was given its work long before cannot copy it.
  const auto gpu = slots.memory.driver == nullptr ? std::nullopt : driver.find(slots.memory.data);
  if (gpu) landing_->reach_from(driver);
  struct GiveBack {
    void operator()(base::Progress* progress) const noexcept { base::give_back(*progress); }
  };
  std::unique_ptr<base::Progress, GiveBack> taken(&base::take_progress());
  if (brought_ == nullptr) brought_ = &base::take_progress();
  for (base::Progress* const progress : {taken.get(), brought_.load()}) {
    progress->word.value.store(epoch());
    progress->parking.silence();
    runtime::reach_progress(driver, progress->word);
  }
  if (gpu) courier_.emplace(driver, gpu->device, brought_.load()->word);
  to_take_.store(epoch());
  taking_.store(epoch());
  failure_.poisons({&taken->word, &taken->parking, {}});
  taken_ = taken.release();
  takes_ = true;
  services().engine.watch(static_cast<runtime::Engine::Taker&>(*this));
}

void ReceiverCore::have_taken(std::uint64_t epoch) {
  to_take_.store(epoch);
  services().engine.heard(backends::Haste::now);
}

backends::AfterTurn ReceiverCore::take_landed() {
  using backends::AfterTurn;
  if (courier_ && !courier_->has_written()) return AfterTurn::work;
  const std::uint64_t last = to_take_.load();
  const std::uint64_t first = taking_.load() + 1;
  std::uint64_t next = first;
  // Nobody reads the slot any more: its release has passed. The peer knew that before, but here nothing says so.
  const auto is_free = [&] { return next <= depth() || base::reached(done, next - depth()); };
  for (; next <= last && landed(next) && is_free() && !failed(); ++next) {
    taking_.store(next);  // first: who closes once the end has failed sees that, or is seen here
    if (failed_in_order()) {
      taking_.store(next - 1);
      break;
    }
    take_for_stream(next);
  }
  if (next > first) return AfterTurn::work;
  return next > last || failed() ? AfterTurn::nothing : AfterTurn::words;
}

void ReceiverCore::take_for_stream(std::uint64_t epoch) {
  if (courier_) return take_by_courier(epoch);
  landing_->take({}, *this, epoch);
  if (!failed()) base::raise(taken_.load()->word, epoch, taken_.load()->parking);
  base::raise(brought_.load()->word, epoch, brought_.load()->parking);
}

void ReceiverCore::take_by_courier(std::uint64_t epoch) {
  courier_->give(*this, epoch, [&](device::Lane lane) {
    landing_->take(lane, *this, epoch);
    lane.gpu->write(taken_.load()->word, epoch);
  });
}

std::uint64_t ReceiverCore::waits_for() const noexcept {
  const std::uint64_t next = waits_passed() + 1;
  const base::Progress* const taken = taken_;
  const bool came = taken == nullptr ? landed(next) : base::reached(taken->word, next);
  return next <= epoch() && !came ? next : 0;
}

void ReceiverCore::await_signal(device::Lane lane, std::uint64_t epoch) {
  const auto wait = [&](const backends::Signal& word) {
    device::wait(lane, {word.word, epoch, word.parking, epoch}, *this, helper_);
    return word.word->value.load(std::memory_order_acquire);
  };
  std::uint64_t value = wait(word_);
  if (value >= base::kPoison) return;  // before it was landed, perhaps
  for (const auto& word : more_words_) value = std::min(value, wait(word));
  if (value < base::kPoison) signal_seen_ = value;
}

bool ReceiverCore::landed(std::uint64_t epoch) const noexcept {
  const auto reached = [&](const backends::Signal& word) { return base::reached(*word.word, epoch); };
  return reached(word_) && connected() && std::all_of(more_words_.begin(), more_words_.end(), reached);
}

void ReceiverCore::take(std::uint64_t epoch) {
  if (!failed() && !lands_in_target()) landing_->take({}, *this, epoch);
}

std::uint64_t ReceiverCore::begin_release() {
  const std::uint64_t epoch = releases_.by_host() + 1;
  if (epoch > this->epoch())
    misuse(epoch,
           "release without a wait: all of the " + std::to_string(epoch - 1) + " epochs waited for are released");
  releases_.enqueue(epoch);
  return epoch;
}

void ReceiverCore::release(Stream stream) {
  bind(stream);
  check();
  const std::uint64_t epoch = begin_release();
  announce(epoch, {});
  issue(
      stream, [this, epoch](device::Lane lane) { give_back(lane, epoch); }, [&] { release_refused(stream); });
}

void ReceiverCore::wait_refused(Stream stream) noexcept {
  given_ = epoch() - refused_waits_ - by_host_;
  if (!gpu_use()->raise_behind(stream, landed_.word, given_)) ++refused_waits_;
}

void ReceiverCore::give_back(device::Lane lane, std::uint64_t epoch) {
  fail_if_stopped(lane);
  await_connected(lane);
  if (!base::trace::on()) [[likely]]
    return enqueue(lane, epoch, {});
  device::trace_slice(lane, "release", traced, epoch, 0, base::trace::Arrow::none,
                      [this, lane, epoch] { enqueue(lane, epoch, {}); });
}

void ReceiverCore::complete(std::optional<Timeout> timeout) {
  base::Limit limit = limit_of(timeout);
  complete(limit);
}

void ReceiverCore::complete(base::Limit& limit) {
  complete_until([this] { return released(); }, limit);
  if (brought_ == nullptr) return;  // a stream may have seen what was taken before its courier has said that it is over
  const auto is_over = [this] { return brought() || failed(); };
  if (!await_in_host(brought_.load()->parking, is_over, limit)) not_drained();
  check();
}

std::optional<Slice> ReceiverCore::test() { return wait_for(Timeout::zero()); }

std::optional<Slice> ReceiverCore::wait_for(Timeout timeout) {
  check_free();
  check();
  const std::uint64_t next = epoch() + 1;
  base::Limit limit(timeout);
  if (warning_.epoch != next && timeout > Timeout::zero()) warning_ = {next, next_warning()};
  const auto in_time = [&](base::Parking& parking, auto here) {
    const auto ready = [&] { return here() || failed() || next > limit_.load(std::memory_order_acquire); };
    if (timeout == Timeout::zero()) return look(ready);
    return await_in_host(parking, ready, limit, warning_);
  };
  bool came = in_time(*word_.parking, [&] { return landed(next); });
  if (came && taken_ != nullptr && landed(next)) {
    if (to_take_.load() < next) have_taken(next);  // ahead of its wait, which is counted when it is over
    came = in_time(taken_.load()->parking, [&] { return base::reached(taken_.load()->word, next); });
  }
  check();
  if (!came) return std::nullopt;
  await_connected({});  // the peer may know of this end before this end knows of the peer
  begin();
  const base::trace::Span slice("wait", traced, next, slot_bytes, base::trace::Arrow::ends);
  if (taken_ == nullptr) take(next);
  by_host_.store(by_host_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  check();
  return slot(next, Stream::Kind::host);
}

void ReceiverCore::on_connect(int) { helper_ = services().engine.helper(); }

bool ReceiverCore::passed() const noexcept {
  const bool waited = waits_passed() >= epochs_.begun() && brought();
  return (waited || (gpu_use() != nullptr && gpu_use()->lost())) && written();
}

void ReceiverCore::on_peer_closed(const Final& final) noexcept {
  lower_limit(last_possible(final));
  base::heavy_fence();
  word_.parking->wake();  // a host that waits for what will never come
}

void ReceiverCore::refuse_enqueued() {
  const std::uint64_t last = last_possible(*closing.theirs);
  if (waits_passed() < last) return;
  fail(Code::misuse, "epoch " + std::to_string(epoch()) + " is waited for, but rank " + std::to_string(opening.peer) +
                         " closed its end after epoch " + std::to_string(last));
}

bool ReceiverCore::complete_without(const Final& final) {
  shut_end();
  return landed(final.wanted);
}

std::string ReceiverCore::state() const {
  const std::uint64_t signal = word_.word->value.load(std::memory_order_relaxed);
  return "enqueued " + std::to_string(epoch()) + " waits, landed " +
         (signal >= base::kPoison ? "poison" : std::to_string(signal)) +
         (brought_ == nullptr ? "" : ", copied to the GPU " + std::to_string(brought_.load()->word.value.load())) +
         ", waited " + std::to_string(waits_passed()) + ", released " + std::to_string(released()) + ", " +
         (connected() ? "connected" : "not connected");
}

}  // namespace sluice::detail

namespace sluice {

using detail::not_empty;
using detail::usable_here;

Receiver::Receiver() noexcept = default;
Receiver::Receiver(std::shared_ptr<detail::ReceiverCore> core) noexcept : core_(std::move(core)) {}
Receiver::Receiver(Receiver&&) noexcept = default;
Receiver& Receiver::operator=(Receiver&& other) noexcept {
  if (this != &other) runtime::abandon(std::exchange(core_, std::move(other.core_)));
  return *this;
}
Receiver::~Receiver() { runtime::abandon(std::move(core_)); }

Slice Receiver::wait(Stream stream) { return not_empty(core_).wait(stream); }
void Receiver::release(Stream stream) { not_empty(core_).release(stream); }
DeviceReceiver Receiver::on_device(Stream stream) { return usable_here(core_).on_device(stream); }
std::optional<Slice> Receiver::test() { return usable_here(core_).test(); }
std::optional<Slice> Receiver::wait_for(Timeout timeout) { return usable_here(core_).wait_for(timeout); }
bool Receiver::connected() const {
  usable_here(core_).check();
  return core_->connected();
}
void Receiver::wait_connected(std::optional<Timeout> timeout) { usable_here(core_).wait_connected(timeout); }
void Receiver::close(std::optional<Timeout> timeout) { usable_here(core_).close(timeout); }
Rank Receiver::peer() const noexcept { return core_ == nullptr ? -1 : core_->opening.peer; }
Tag Receiver::tag() const noexcept { return core_ == nullptr ? 0 : core_->opening.key.tag; }
std::uint64_t Receiver::epoch() const noexcept { return core_ == nullptr ? 0 : core_->epoch(); }
std::string Receiver::describe() const { return usable_here(core_).describe(); }

}  // namespace sluice
