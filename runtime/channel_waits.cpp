// SPDX-License-Identifier: Apache-2.0
// The common part of both ends of a channel: the streams that they are used on, and waits.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>
#include <tuple>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/wait_graph.hpp"
#include "runtime/channel.hpp"
#include "runtime/engine.hpp"
#include "runtime/registry.hpp"
#include "runtime/report.hpp"

namespace sluice::runtime {

using base::Clock;

namespace {

/// The word of the table of waits for a wait that the timeline calls `what`.
const char* verb_of(const char* what, bool sends) noexcept {
  if (what != nullptr && what == std::string_view("wait for source")) return "acquires";
  return sends ? "puts" : "waits";
}

/// Who owes what the end waits for, to follow other text; empty: the wait is not noted.
std::string owed_here(const ChannelEnd* end) {
  for (const base::WaitRecord& wait : base::waits_here()) {
    if (wait.end == end) return "; " + base::who_owes(wait);
  }
  return {};
}

/// One table for all ranks of this process.
void tell_of_waits(Clock::duration every) {
  static base::OnePerProcess<base::Guarded<Clock::time_point>> next;
  const auto now = Clock::now();
  const std::lock_guard lock(next->mutex);
  if (now < next->value) return;
  std::vector<int> ranks(static_cast<std::size_t>(std::max(0, report().ranks.load())));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::string table = base::wait_table(base::waits_here(), ranks, now, every / 2);
  if (table.empty()) return;
  next->value = now + every;
  base::log(base::LogLevel::warn, table);
}

}  // namespace

void ChannelEnd::check_bindable(Stream stream) {
  if (bound_ == here_with(stream) && device::usable(stream)) return;
  if (bound_ <= kPlanned) refuse_bound();
  check_kind(stream);
  check();
}

void ChannelEnd::check_kind(Stream stream) const {
  if (bound_ > kUnbound && bound_ != here_with(stream))
    misuse(epoch(), std::string("the ") + noun() + " is used with another kind of stream");
  device::check_supported(stream, opening.rank);
  const auto opened_for = opening.options.stream;
  if (opened_for && opened_for->kind() != stream.kind()) misuse(0, "the channel was opened for another kind of stream");
}

void ChannelEnd::refuse_bound() const {
  check();
  const std::string what = noun();
  misuse(epoch(), bound_ == kClosed    ? "the " + what + " is closed here"
                  : bound_ == kKernels ? "kernels drive this " + what
                                       : "a plan drives this " + what);
}

void ChannelEnd::bind_slowly(Stream stream) {
  if (!origin.here()) throw error(Code::misuse, 0, base::kForked);
  check_bindable(stream);
  if (stream.kind() == Stream::Kind::program_order) wait_connected({});
  if (device::of_gpu(stream)) bind_to_gpu(stream);
  remember(stream);
  bound_ = here_with(stream);
  bound_to_ = device::of_gpu(stream) || checked() ? this : stream.handle();
}

void ChannelEnd::remember(Stream stream) {
  if (stream.kind() == Stream::Kind::program_order) return;
  if (std::find(streams_.begin(), streams_.end(), stream) != streams_.end()) return;
  const auto locked = lock_registry();
  streams_.push_back(stream);
}

/// Everything is mapped now, because nothing can be mapped behind a parked stream.
void ChannelEnd::bind_to_gpu(Stream stream) {
  device::Driver& driver = *device::driver(stream.kind());
  try {
    if (lenders_ > 0) misuse(epoch(), "a WaitAny waits for the receiver on streams of a GPU");
    const auto [gpu, capture] = driver.look_at(stream.handle());
    if (capture != 0)
      throw error(Code::unsupported, epoch(), "the stream captures a graph: only a plan can be part of one");
    if (const GpuUse* const use = gpu_use()) {
      if (gpu != use->gpu())
        misuse(epoch(), "the stream is of GPU " + std::to_string(gpu) +
                            ", and the channel is used with streams of GPU " + std::to_string(use->gpu()));
      return;
    }
    wait_connected({});
    if (put_ != nullptr && put_->fired_by == backends::Fired::by_nic) services_->try_out(driver, gpu);
    const auto locked = lock_registry();  // the peer may be about to close
    reach_from(driver, gpu);
    services_->engine.wake();
  } catch (const Error&) {
    throw;
  } catch (const device::InvalidCapture& reason) {
    misuse(epoch(), reason.what());
  } catch (const std::exception& reason) {
    throw error(Code::out_of_resources, epoch(), reason.what());
  }
}

/// Maps for the stream that the options name, so that its first use need not.
void ChannelEnd::reach_named_stream() {
  const auto& stream = opening.options.stream;
  if (!stream || !device::of_gpu(*stream) || failed()) return;
  try {
    reach_from(*device::driver(stream->kind()), opening.gpu);
  } catch (const std::exception& reason) {  // rethrown, it would lose the message that the engine handles
    record(Code::out_of_resources, reason.what(), true);
  }
}

/// Called while no work of this end is outstanding.
void ChannelEnd::reach_from(device::Driver& driver, int gpu) {
  const device::OnDevice current(driver, gpu);
  auto use = std::make_unique<GpuUse>(driver, gpu, rung_, sends());
  std::string why_not;
  if (!use->reach_slots(slots.memory, why_not)) {
    stale_ = true;
    warn_of_stale_slots(why_not);
  }
  device::reach(driver, word_.memory);
  for (const auto& word : more_words_) device::reach(driver, word.memory);
  reach_progress(driver, done);
  reach_own(driver);
  done_parking.silence();
  if (rung_ != nullptr) {
    services_->engine.reach(*rung_, driver);
  } else if (put_ != nullptr && !closing.told()) {  // else the peer may have freed its memory, and nothing is put
    put_->reach_from(driver);
  }
  if (lengths() != nullptr && !closing.told()) lengths()->reach(services_->engine, driver);
  gpu_owner_ = std::move(use);
  gpu_.store(gpu_owner_.get(), std::memory_order_release);
  services_->registry.watch_stream(*this);
  device::add_user(*this);
}

void ChannelEnd::lend_slots(device::Driver& driver, int gpu) {
  const device::OnDevice current(driver, gpu);
  const auto locked = lock_registry();
  if (closed_) return;
  if (slots.memory.driver != nullptr) return check_on_gpu(driver, gpu);
  if (lent_to_ == &driver) return;
  try {
    device::Reached slots_of_host = device::reach(driver, slots.memory);
    std::ranges::move(slots_of_host, std::back_inserter(lent_));
    lent_to_ = &driver;
  } catch (const device::StalePages& reason) {
    warn_of_stale_slots(reason.what());
  }
}

void ChannelEnd::check_on_gpu(device::Driver& driver, int gpu) const {
  const auto found = slots.memory.driver == &driver ? driver.find(slots.memory.data) : std::nullopt;
  if (!found || found->device != gpu)
    throw error(Code::unsupported, epoch(), "the slots lie in the memory of another GPU than the stream's");
}

void ChannelEnd::warn_of_stale_slots(const std::string& why) const {
  base::log(base::LogLevel::warn, error(Code::unsupported, epoch(), "kernels must not use the slots: " + why).what());
}

void ChannelEnd::let_engine_poll(device::Driver& driver, std::uint64_t from) {
  OwnedProgress visible = progress_for(driver);
  visible->word.value.store(from);
  failure_.poisons({&visible->word, &visible->parking, {}});
  visible_ = visible.release();
  polled_ = true;
  services_->engine.watch(*this);
}

void ChannelEnd::stop_polling() noexcept {
  if (std::exchange(polled_, false)) services_->engine.forget(*this);
}

void ChannelEnd::begin_handing(Stream stream) {
  base::Limit limit = limit_of({});
  complete(limit);
  bind_slowly(stream);
  wait_connected({});
  if (!passed()) misuse(epoch(), "work of this channel is enqueued and has not completed");
}

std::unique_lock<std::mutex> ChannelEnd::lock_registry() { return std::unique_lock(services_->registry.mutex()); }

void ChannelEnd::let_kernels_count(kernel::Count& epochs, kernel::Count& fired, const std::uint64_t& fault) {
  fault_ = &fault;
  if (&fired != &epochs) releases_.let_kernels_count(fired);
  epochs_.let_kernels_count(epochs);
  if (shut()) hold_kernels();
  if (rung_ != nullptr) services_->engine.let_kernels_ring(*rung_, fired);
  services_->registry.watch_stream(*this);
  services_->engine.wake();
}

/// Waits until kernels have counted so far that `known`; all of them have if kernels count nothing. False: not within
/// the limit.
bool ChannelEnd::await_counts(bool (Epochs::*known)() const noexcept, base::Limit& limit) const {
  if (!counted()) return true;
  const auto ready = [&] { return ((epochs_.*known)() && (releases_.*known)()) || failed(); };
  return await_in_host(done_parking, ready, limit, "awaits kernels");
}

bool ChannelEnd::await_done(std::uint64_t last, base::Limit& limit) const {
  const auto ready = [&] { return base::reached(done, last) || failed(); };
  return await_in_host(done_parking, ready, limit, "drains");
}

/// An end that is shut counts as landed: the peer has closed, or this end has failed.
bool ChannelEnd::await_landed(std::uint64_t last, base::Limit& limit) const {
  if (!connected() || put_ == nullptr) return true;
  const auto ready = [&] { return shut() || put_->landed(last); };
  return look(ready) || await_in_host(done_parking, ready, limit, "drains");
}

void ChannelEnd::await_room(device::Lane lane, std::uint64_t last_done) {
  lane.gpu->issue();
  base::Limit limit(services_->limits.wait);
  if (!await_done(last_done, limit)) fail(Code::timeout, "the host waited for room for one more epoch; " + state());
}

std::uint64_t ChannelEnd::complete(base::Limit& limit) {
  check();
  if (!await_counts(&Epochs::kernels_have_begun, limit)) not_drained();
  const std::uint64_t last = put_epochs().last();
  if (!await_done(last, limit)) not_drained();
  if (sends()) races_.all_taken_back();
  check();
  return last;
}

void ChannelEnd::not_drained() const {
  check();
  throw error(Code::timeout, epoch(), "not drained; " + state());
}

Clock::duration ChannelEnd::waited(const device::Wait& wait, Clock::duration so_far, Timeout limit,
                                   base::WaitNote& note) noexcept {
  const Limits& limits = services_->limits;
  if (!unlimited_) limit = std::min(limit, limits.wait);
  if (so_far >= limit) {
    const std::string text = state();  // first: it must not show the awaited signal (test: a_limit_ends_no_wait_*)
    const bool over = wait.word == nullptr ? waits_for() != wait.epoch : base::reached(*wait.word, wait.at_least);
    if (over) return Clock::duration::zero();
    base::log(base::LogLevel::warn, error(Code::timeout, wait.epoch, "gives up; " + text).what());
    fail(Code::timeout,
         "waited " + base::duration_text(so_far) + " for epoch " + std::to_string(wait.epoch) + "; " + text);
    return Clock::duration::zero();
  }
  const Clock::duration first = noted_after();
  if (so_far >= first && note.due(Clock::now(), first))
    note_wait(note, verb_of(wait.what, sends()), wait.epoch, wait.peer_copies);
  constexpr Clock::duration kRarest = std::chrono::seconds(5);
  const auto ask =
      std::min({Clock::duration(limit - so_far), base::step_of(limit), std::clamp(so_far, first, kRarest)});
  if (limits.warn <= Timeout::zero()) return ask;
  const auto warnings = so_far / limits.warn;
  if (warnings > warnings_) {
    Warning warning{wait.epoch};
    warn(warning);
  }
  warnings_ = warnings;
  return std::min<Clock::duration>(ask, (warnings + 1) * limits.warn - so_far);
}

Clock::time_point ChannelEnd::next_warning() const noexcept {
  const Timeout every = services_->limits.warn;
  return every > Timeout::zero() ? base::deadline_after(every) : Clock::time_point::max();
}

Clock::duration ChannelEnd::noted_after() const noexcept {
  constexpr Clock::duration kSoonest = std::chrono::milliseconds(1);
  const Timeout warn = services_->limits.warn;
  return warn > Timeout::zero() ? std::clamp<Clock::duration>(warn / 4, kSoonest, base::kNotedAfter)
                                : base::kNotedAfter;
}

void ChannelEnd::look_at(Warning& warning) const {
  const auto now = Clock::now();
  if (warning.note.due(now, noted_after())) note_wait(warning.note, warning.verb, warning.epoch);
  if (now >= warning.at) warn(warning);
}

/// Where a table of all ranks is printed, which is by sluice-run or by a process with several ranks, the log has the
/// line of each wait from level info on.
void ChannelEnd::warn(Warning& warning) const {
  warning.at = next_warning();
  const bool in_table = base::waits_are_shared() || report().ranks > 1;
  const auto level = in_table ? base::LogLevel::info : base::LogLevel::warn;
  if (base::enabled(level))
    base::log(level, error(Code::timeout, warning.epoch, "still waiting; " + state()).what() + owed_here(this));
  if (in_table && !base::waits_are_shared()) tell_of_waits(services_->limits.warn);
}

base::WaitRecord ChannelEnd::record_of_wait(const char* verb) const noexcept {
  base::WaitRecord record;
  record.rank = services_->rank;
  record.peer = alone() ? -1 : opening.key.world_peer;
  record.tag = opening.key.tag;
  record.sends = sends();
  record.end = this;
  record.verb = verb;
  record.name = opening.name;
  return record;
}

void ChannelEnd::note_wait(base::WaitNote& note, const char* verb, std::uint64_t epoch,
                           bool peer_copies) const noexcept {
  base::WaitRecord record = record_of_wait(verb);
  record.lack = base::Lack::opening;
  if (connected())
    std::tie(record.lack, record.epoch) = peer_copies ? std::pair(base::Lack::copying, epoch) : lacks(epoch);
  note.write(record);
  if (record.peer >= 0) services_->registry.ask(id);
}

void ChannelEnd::note_closing(base::WaitNote& note) const noexcept {
  if (!passed()) return note_wait(note, "closes", epoch());
  base::WaitRecord record = record_of_wait("closes");
  record.lack = base::Lack::letting_go;
  note.write(record);
}

void ChannelEnd::await_connected_slowly(device::Lane lane, std::uint64_t epoch) noexcept {
  device::wait_slowly(lane, {&connected_word_, 1, &done_parking, epoch, "wait for the peer"}, *this, nullptr);
}

void ChannelEnd::wait_connected(std::optional<Timeout> timeout) {
  const Timeout stated = timeout.value_or(services_->limits.connect);
  base::Limit limit(stated);
  wait_connected(limit, stated);
}

void ChannelEnd::wait_connected(base::Limit& limit, Timeout stated) {
  const auto ready = [&] { return base::reached(connected_word_, 1) || failed(); };
  const bool in_time = await_in_host(done_parking, ready, limit, "connects");
  check();
  if (!in_time) {
    throw error(Code::timeout, 0,
                "not connected" + (stated > Timeout::zero() ? " after " + base::duration_text(stated) : std::string()) +
                    ": rank " + std::to_string(opening.peer) + " has not opened its end; " + state());
  }
}

void ChannelEnd::check_gpu(Clock::time_point now) noexcept {
  GpuUse* const use = gpu_use();
  if (use == nullptr || use->lost() || passed() || !use->look_for_loss(now)) return;
  fail(Code::transport, device::kLost);
  if (lengths() != nullptr) lengths()->give_up();
  use->lose();
}

void ChannelEnd::check_streams(Clock::time_point now) noexcept {
  check_gpu(now);
  if (fault_ != nullptr && kernel::load_acquire(*fault_) != 0)
    fail(Code::misuse, "kernels have come to another slot than the one they were captured or written for");
  const std::uint64_t epoch = failed() ? 0 : waits_for();
  if (std::exchange(seen_epoch_, epoch) != epoch) {
    seen_for_ = {};
    seen_note_ = base::WaitNote(now, "a GPU's stream");
  }
  if (epoch == 0) return;
  seen_for_.look(services_->check_every);
  waited({.epoch = epoch}, seen_for_.so_far(), kForever, seen_note_);
}

}  // namespace sluice::runtime
