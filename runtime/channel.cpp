// SPDX-License-Identifier: Apache-2.0
// What both ends of a channel have in common: connecting, failing, waiting, closing.
#include "runtime/channel.hpp"

#include <algorithm>
#include <exception>

#include "base/log.hpp"
#include "base/text.hpp"
#include "runtime/world.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;

device::Extent extent_of(const Slice& memory) {
  const auto& block = detail::SliceAccess::block(memory);
  if (block == nullptr) return {memory.data(), memory.bytes()};
  return {memory.data(), memory.bytes(), block->extent.segment, block->extent.driver};
}

/// While nothing of ours is parked yet, which the driver would wait for. Whoever needs them hears why there are none:
/// that is everybody where they wait.
void load_kernels(device::Driver& driver, int gpu) {
  try {
    driver.load_kernels(gpu);
  } catch (const std::exception& reason) {
    if (device::words_by_kernels()) throw;
    base::log(base::LogLevel::info, std::string("no kernels: ") + reason.what());
  }
}

/// Two texts from the first word on in which they differ, not all of it if that is long.
std::pair<std::string, std::string> from_first_unlike_word(const std::string& a, const std::string& b) {
  constexpr std::size_t kShown = 80;
  const auto unlike = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  const std::size_t begin = unlike == 0 ? 0 : a.rfind(' ', static_cast<std::size_t>(unlike) - 1) + 1;  // npos + 1: 0
  return {a.substr(begin, kShown), b.substr(begin, kShown)};
}

}  // namespace

void reach_progress(device::Driver& driver, base::Word& word) {
  device::reach_for_ever(driver, base::page_of(word), base::Progress::kPage);
}

ChannelEnd::ChannelEnd(std::shared_ptr<World> world, Opening what)
    : world_(std::move(world)), opening(std::move(what)), id(world_->next_id()),
      slot_bytes(opening.memory.bytes() / static_cast<std::size_t>(opening.options.depth)),
      slots_{extent_of(opening.memory), slot_bytes, opening.options.depth} {
  constexpr int kDeep = 4;  // from here on many epochs are under way at a time
  word_ =
      world_->take_word(opening.key.world_peer, opening.options.depth >= kDeep ? Standing::alone : Standing::together);
  if (base::trace::on()) traced = trace_channel();
}

/// Its arrows are named by what both ends know.
base::trace::Channel ChannelEnd::trace_channel() const {
  const ChannelKey& key = opening.key;
  const bool sends = key.role == Role::sender;
  std::string label =
      (sends ? "to rank " : "from rank ") + std::to_string(opening.peer) + ", tag " + std::to_string(key.tag);
  if (!opening.name.empty()) label = opening.name + ": " + label;
  const Rank here = world_->place().rank;
  const std::string both = std::to_string(sends ? here : key.world_peer) + ' ' +
                           std::to_string(sends ? key.world_peer : here) + ' ' + std::to_string(key.tag) + ' ' +
                           key.scope;
  // Channels of the same key come one after another.
  const int which = base::trace::count(both + (sends ? " out" : " in"));
  return {base::trace::kept(label), base::hash(both + ' ' + std::to_string(which)), world_->track(), sends};
}

ChannelEnd::~ChannelEnd() {
  landing_.reset();  // first: it may raise the words
  if (marks_ != nullptr) base::give_back(*marks_);
  world_->give_back_word(opening.key.world_peer, word_);
  for (const auto& word : more_words_) world_->give_back_word(opening.key.world_peer, word);
}

backends::Key ChannelEnd::land(backends::Link& link, std::vector<backends::Signal> more) {
  for (auto& word : more) word.parking = word_.parking;  // a sleeper waits for all words at once
  {
    const std::lock_guard lock(failure_mutex_);  // it may be failing
    more_words_ = std::move(more);
    if (failed()) poison_more_words();
  }
  std::vector<backends::Signal> words{word_};
  words.insert(words.end(), more_words_.begin(), more_words_.end());
  landing_ = link.land(target(), words);
  return landing_->key();
}

Timeout ChannelEnd::wait_limit() const noexcept { return world_->limits().wait; }

bool ChannelEnd::await_done(std::uint64_t last, base::Limit& limit) const {
  const auto ready = [&] { return done.value.load(std::memory_order_acquire) >= last || failed(); };
  return await_in_host(done_parking, ready, limit);
}

/// Of an end that is shut nothing is seen any more: the peer has closed its own, or it has failed.
bool ChannelEnd::await_landed(std::uint64_t last, base::Limit& limit) const {
  if (!connected() || put_ == nullptr) return true;
  const auto ready = [&] { return shut() || put_->landed(last); };
  return look(ready) || await_in_host(done_parking, ready, limit);
}

void ChannelEnd::not_drained() const {
  check();
  throw error(Code::timeout, epoch(), "not drained; " + state());
}

std::string ChannelEnd::disagreement(const RemoteEnd& remote) const {
  const auto differ = [&](const std::string& here, const std::string& there) {
    return "the two ends disagree: " + here + " a slot here, " + there + " at rank " + std::to_string(opening.peer);
  };
  const std::string& ours = opening.contents;
  const std::string& theirs = remote.contents;
  if (!ours.empty() && !theirs.empty() && ours != theirs) {
    const auto [here, there] = from_first_unlike_word(ours, theirs);
    return differ('"' + here + '"', '"' + there + '"');
  }
  if (remote.slot_bytes != slot_bytes)
    return differ(std::to_string(slot_bytes) + " bytes", std::to_string(remote.slot_bytes));
  return {};
}

void ChannelEnd::connect(backends::Link& link, RemoteEnd remote) {
  remote_id = remote.id;
  if (const std::string why = disagreement(remote); !why.empty()) record(Code::mismatch, why, true);
  if (remote.failure) peer_failed(remote.failure->first, remote.failure->second);
  try {
    // The memory of an end that was closed before we knew of it may be gone.
    if (!failed() && (!remote.final || remote.final->wanted > 0))
      put_ = link.prepare(source(), *this, std::move(remote.key));
  } catch (const std::exception& reason) {
    record(Code::out_of_resources, std::string("the peer's memory cannot be reached: ") + reason.what(), true);
  }
  if (put_ == nullptr) shut_end();
  rung_ = dynamic_cast<backends::RungPut*>(put_.get());
  if (rung_ != nullptr) {
    if (opening.key.role == Role::sender) {
      world_->engine().watch(*rung_);
    } else {
      world_->engine().watch_credits(*rung_, opening.options.depth, *word_.word);
    }
  }
  on_connect(remote.depth);
  if (put_ != nullptr) {
    if (const auto obstacle = put_->obstacle()) world_->tell_way(*this, *obstacle);
  }
  undecided_ = put_ != nullptr && landing_ != nullptr && landing_->undecided();
  if (!undecided_) begin_working();
  if (remote.final) peer_closed(*remote.final);
}

void ChannelEnd::decide(const std::string& obstacle) {
  if (!std::exchange(undecided_, false)) return;  // it has closed meanwhile
  if (landing_ != nullptr) landing_->decide(obstacle);
  begin_working();
}

void ChannelEnd::begin_working() {
  reach_named_stream();
  if (!failed()) base::raise(connected_word_, 1, done_parking);
  word_.parking->wake();  // who waits for what the peer has put may look at all of it now
}

/// The stream that was named at opening: then nothing is left to be mapped at its first use.
void ChannelEnd::reach_named_stream() {
  const auto& stream = opening.options.stream;
  if (!stream || !device::of_gpu(*stream) || failed()) return;
  try {
    reach_from(*device::driver(stream->kind()), opening.gpu);
  } catch (const std::exception& reason) {  // else what the engine was told, and does this for, would be lost
    record(Code::out_of_resources, reason.what(), true);
  }
}

void ChannelEnd::peer_closed(const Final& final) {
  // It may never tell, and nothing lands.
  if (final.wanted == 0 && std::exchange(undecided_, false)) begin_working();
  closed_by_peer = final;
  on_peer_closed(final);
}

void ChannelEnd::peer_lost(const std::string& what) noexcept {
  const bool parted = closing && let_go_by_peer_;
  gone_ = true;
  let_go_by_peer_ = true;
  if (parted) return;
  if (closed_by_peer && complete_without(*closed_by_peer)) return;
  record(Code::peer_lost, what, false);
}

Error ChannelEnd::error(Code code, std::uint64_t epoch, const std::string& what) const {
  const char* end = opening.key.role == Role::sender ? "sender: " : "receiver: ";
  const std::string named = opening.name.empty() ? end : "'" + opening.name + "' " + end;
  return {code, opening.rank, opening.peer, opening.key.tag, epoch, named + what};
}

void ChannelEnd::record(Code code, const std::string& what, bool tell_peer) noexcept {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_.emplace(error(code, epoch(), what));
  }
  // In this order: whoever is woken by the poison finds the failure recorded.
  world_->record(*failure_);
  set_failed();    // first: who meets the new limit says why
  hold_kernels();  // before the poison, which wakes those who may not go on
  limit_.store(0);
  poison();
  world_->notice_failure(*this, code, what, tell_peer);
  if (base::trace::on()) base::trace::mark("failed", traced, what);
}

void ChannelEnd::poison() noexcept {
  base::raise(*word_.word, base::kPoison, *word_.parking);
  {
    const std::lock_guard lock(failure_mutex_);
    poison_more_words();
  }
  if (base::Progress* const taken = taken_) base::raise(taken->word, base::kPoison, taken->parking);
  if (!connected()) base::raise(connected_word_, base::kPoison, done_parking);
  done_parking.wake();
}

void ChannelEnd::poison_more_words() const noexcept {
  for (const auto& word : more_words_) base::raise(*word.word, base::kPoison, *word.parking);
}

void ChannelEnd::poison_again() const noexcept {
  const auto again = [](const backends::Signal& word) {
    if (word.word->value.load(std::memory_order_relaxed) < base::kPoison)
      base::raise(*word.word, base::kPoison, *word.parking);
  };
  again(word_);
  for (const auto& word : more_words_) again(word);
  if (base::Progress* const taken = taken_) again({&taken->word, &taken->parking, {}});
}

void ChannelEnd::throw_failure() const {
  const std::lock_guard lock(failure_mutex_);
  throw Error(*failure_);
}

void ChannelEnd::misuse(std::uint64_t epoch, const std::string& what) const { throw error(Code::misuse, epoch, what); }

void ChannelEnd::refuse(std::uint64_t epoch) const {
  check();
  misuse(epoch, bound_ == kClosed ? "the channel is closed here" : why_refused(epoch));
}

void ChannelEnd::count_for_plan() {
  count(epoch() + 1);
  if (epoch() > limit_.load(std::memory_order_acquire)) world_->engine().wake();
}

void ChannelEnd::fail_for(const HostStream::Impl& stream) noexcept {
  if (!failed()) fail(Code::aborted, std::string("its host stream had stopped: ") + stream.stopped_by()->what());
}

void ChannelEnd::report_failure_to(HostStream::Impl& stream) const noexcept {
  const std::lock_guard lock(failure_mutex_);
  stream.wait_failed(*failure_);
}

void ChannelEnd::lower_limit(std::uint64_t limit) noexcept {
  std::uint64_t now = limit_.load();
  while (limit < now && !limit_.compare_exchange_weak(now, limit)) {
  }
}

bool ChannelEnd::still_waits(const device::Wait& wait) const noexcept {
  return wait.word == nullptr ? waits_for() == wait.epoch : !base::reached(*wait.word, wait.at_least);
}

Clock::duration ChannelEnd::waited(const device::Wait& wait, Clock::duration so_far, Timeout limit) noexcept {
  const Limits& limits = world_->limits();
  limit = std::min(limit, limits.wait);
  if (so_far >= limit) {
    const std::string text = state();  // first: it must not show the awaited signal (test: a_limit_ends_no_wait_*)
    if (!still_waits(wait)) return Clock::duration::zero();
    base::log(base::LogLevel::warn, error(Code::timeout, wait.epoch, "gives up; " + text).what());
    fail(Code::timeout,
         "waited " + base::duration_text(so_far) + " for epoch " + std::to_string(wait.epoch) + "; " + text);
    return Clock::duration::zero();
  }
  const auto ask = std::min<Clock::duration>(limit - so_far, base::step_of(limit));
  if (limits.warn <= Timeout::zero()) return ask;
  const auto warnings = so_far / limits.warn;
  if (warnings > warnings_)
    base::log(base::LogLevel::warn, error(Code::timeout, wait.epoch, "still waiting; " + state()).what());
  warnings_ = warnings;
  return std::min<Clock::duration>(ask, (warnings + 1) * limits.warn - so_far);
}

Clock::time_point ChannelEnd::next_warning() const noexcept {
  const Timeout every = world_->limits().warn;
  return every > Timeout::zero() ? deadline_after(every) : Clock::time_point::max();
}

void ChannelEnd::warn(Warning& warning) const {
  base::log(base::LogLevel::warn, error(Code::timeout, warning.epoch, "still waiting; " + state()).what());
  warning.at = next_warning();
}

void ChannelEnd::await_connected_slowly(device::Lane lane) noexcept {
  device::wait_slowly(lane, {&connected_word_, 1, &done_parking, epoch(), "wait for the peer"}, *this, nullptr);
}

void ChannelEnd::wait_connected(std::optional<Timeout> timeout) {
  const Timeout stated = timeout.value_or(world_->limits().connect);
  base::Limit limit(stated);
  wait_connected(limit, stated);
}

void ChannelEnd::wait_connected(base::Limit& limit, Timeout stated) {
  const auto ready = [&] { return connected_word_.value.load(std::memory_order_acquire) >= 1 || failed(); };
  const bool in_time = await_in_host(done_parking, ready, limit);
  check();
  if (!in_time) {
    throw error(Code::timeout, 0,
                "not connected" + (stated > Timeout::zero() ? " after " + base::duration_text(stated) : std::string()) +
                    ": rank " + std::to_string(opening.peer) + " has not opened its end; " + state());
  }
}

void ChannelEnd::bind_slowly(Stream stream) {
  if (!origin.here()) throw error(Code::misuse, 0, base::kForked);
  check_bindable(stream);
  if (stream.kind() == Stream::Kind::program_order) wait_connected({});
  if (device::of_gpu(stream)) bind_to_gpu(stream);
  bound_ = here_with(stream);
}

/// Nothing can be mapped behind a parked stream, so all is mapped now.
void ChannelEnd::bind_to_gpu(Stream stream) {
  device::Driver& driver = *device::driver(stream.kind());
  try {
    const auto [gpu, capture] = driver.look_at(stream.handle());
    if (capture != 0)
      throw error(Code::unsupported, epoch(), "the stream captures a graph: only a plan can be part of one");
    if (gpus() != nullptr) {
      if (gpu != gpu_)
        misuse(epoch(), "the stream is of GPU " + std::to_string(gpu) +
                            ", and the channel is used with streams of GPU " + std::to_string(gpu_));
      return;
    }
    wait_connected({});
    if (put_ != nullptr && put_->fired() == backends::Fired::by_nic) world_->try_out(driver, gpu);
    const std::lock_guard lock(world_->mutex());  // the peer may be about to go
    reach_from(driver, gpu);
    world_->engine().wake();
  } catch (const Error&) {
    throw;
  } catch (const device::InvalidCapture& reason) {
    misuse(epoch(), reason.what());
  } catch (const std::exception& reason) {
    throw error(Code::out_of_resources, epoch(), reason.what());
  }
}

/// Nothing of it is outstanding.
void ChannelEnd::reach_from(device::Driver& driver, int gpu) {
  const device::OnDevice current(driver, gpu);
  load_kernels(driver, gpu);
  try {
    (void)driver.own_stream(gpu);  // which is asked whether the GPU is lost
  } catch (const device::GpuError& reason) {
    base::log(base::LogLevel::warn, std::string("nobody will be told if the GPU is lost: ") + reason.what());
  }
  try {
    reached_ = device::reach(driver, slots_.memory);
  } catch (const device::StalePages& reason) {
    stale_ = true;
    const std::string text = std::string("kernels must not use the slots: ") + reason.what();
    base::log(base::LogLevel::warn, error(Code::unsupported, epoch(), text).what());
  }
  device::reach(driver, word_.memory);
  for (const auto& word : more_words_) device::reach(driver, word.memory);
  reach_own(driver);
  done_parking.silence();
  if (rung_ != nullptr) {
    base::Progress& marks = base::take_progress();
    marks_ = &marks;
    reach_progress(driver, marks.word);
    world_->engine().reach(*rung_, driver);
  } else if (put_ != nullptr && !peer_told) {  // else its memory may be gone, and nothing is put any more
    put_->reach_from(driver);
  }
  gpu_ = gpu;
  gpus_.store(&driver, std::memory_order_release);
  device::add_user(*this);
}

bool ChannelEnd::raise_behind(Stream stream, base::Word& word, std::uint64_t value) const noexcept {
  try {
    device::on_gpu(device::GpuCall(stream, gpu_), [&](device::Lane lane) { lane.gpu->write(word, value); });
    return true;
  } catch (const device::GpuError&) {
    return false;
  }
}

void ChannelEnd::mark_behind(Stream stream) noexcept {
  base::Word& word = marks_.load()->word;
  if (!raise_behind(stream, word, ++marked_)) marked_ = word.value.load();
}

void ChannelEnd::firing_refused(Stream stream, std::uint64_t last) noexcept {
  if (rung_ == nullptr) {
    if (!raise_behind(stream, done, last)) ++refused_;
    return;
  }
  mark_behind(stream);
  ring_refused_ = true;  // behind the mark, which is looked for from now on
}

bool ChannelEnd::marks_passed() const noexcept {
  return lost() || marks_ == nullptr || base::reached(marks_.load()->word, marked_);
}

void ChannelEnd::forget_refused_rings() noexcept {
  if (ring_refused_ && marks_passed()) rung_->forget_refused_rings();
}

bool ChannelEnd::fired(std::uint64_t last) const noexcept {
  const bool refused = ring_refused_;
  if (lost() && rung_ == nullptr) return true;
  if (!marks_passed()) return false;
  // The stream has passed: what it has not rung for by now it never will, and whoever hears the bell says what is over.
  if (refused) last = std::min(last, rung_->epoch_of(rung_->bell().rung()));
  return done.value.load(std::memory_order_acquire) + refused_ >= last;
}

void ChannelEnd::await_room(device::Lane lane, std::uint64_t last_done) {
  lane.gpu->issue();
  const auto ready = [&] { return done.value.load(std::memory_order_acquire) >= last_done || failed(); };
  base::Limit limit(world_->limits().wait);
  if (!await_in_host(done_parking, ready, limit))
    fail(Code::timeout, "the host waited for room for one more epoch; " + state());
}

void ChannelEnd::let_kernels_count(kernel::Count& epochs, kernel::Count& fired, const std::uint64_t& fault) {
  epochs.begun = epochs.entered = enqueued_.load();
  epochs.held = fired.held = kernel::kOpen;
  fault_ = &fault;
  fired_.store(&fired);
  counted_.store(&epochs, std::memory_order_release);
  if (shut()) hold_kernels();
  if (rung_ != nullptr) world_->engine().let_kernels_ring(*rung_, fired);
  world_->engine().wake();
}

std::unique_lock<std::mutex> ChannelEnd::lock_world() { return std::unique_lock(world_->mutex()); }

void ChannelEnd::hold_kernels() noexcept {
  kernel::Count* const fired = fired_;
  if (fired == nullptr) return;
  const std::atomic_ref held(fired->held);
  std::uint64_t open = kernel::kOpen;
  if (failed()) return held.store(kernel::kHeldByFailure);
  held.compare_exchange_strong(open, kernel::kHeldByClosing);
}

/// Waits until all eager work has begun; replays of graphs are not included. False: not within the limit.
bool ChannelEnd::await_kernels(base::Limit& limit) const {
  if (!counted()) return true;
  const auto begun = [](const kernel::Count* count) {
    return count == nullptr || kernel::load_acquire(count->eager) >= count->launched;
  };
  return await_in_host(
      done_parking, [&] { return (begun(counted_) && begun(fired_)) || failed(); }, limit);
}

/// Once the end is closed: which epochs have begun is known for good. False: not within the limit.
bool ChannelEnd::await_decided(base::Limit& limit) const {
  if (!counted()) return true;
  const auto decided = [](kernel::Count* count) { return kernel::is_decided(*count); };
  return await_in_host(
      done_parking, [&] { return (decided(counted_) && decided(fired_)) || failed(); }, limit);
}

/// Nobody hears of work that a GPU does not do any more.
void ChannelEnd::ask_for_gpu(Clock::time_point now) noexcept {
  constexpr auto kEvery = std::chrono::milliseconds(1);
  if (gpus() == nullptr || lost_ || now < ask_gpu_at_ || passed()) return;
  ask_gpu_at_ = now + kEvery;
  if (!gpus()->lost(gpu_)) return;
  fail(Code::transport, device::kLost);
  if (rung_ != nullptr) ring_refused_ = true;  // of what was to be rung for, the rest never will be
  lost_ = true;
}

void ChannelEnd::ask_for_stream(Clock::time_point now) noexcept {
  ask_for_gpu(now);
  if (fault_ != nullptr && kernel::load_acquire(*fault_) != 0)
    fail(Code::misuse, "kernels have come to another slot than the one they were captured or written for");
  const std::uint64_t epoch = failed() ? 0 : waits_for();
  if (std::exchange(asked_for_, epoch) != epoch) asked_for_so_long_ = {};
  if (epoch == 0) return;
  asked_for_so_long_.look(world_->ask_every());
  waited({.epoch = epoch}, asked_for_so_long_.so_far(), kForever);
}

void ChannelEnd::check_bindable(Stream stream) {
  if (bound_ == here_with(stream) && device::usable(stream)) return;
  if (bound_ <= kPlanned) refuse_bound();
  if (bound_ != kUnbound && bound_ != here_with(stream))
    misuse(epoch(), "the channel is used with another kind of stream");
  device::check_supported(stream, opening.rank);
  check();
  const auto opened_for = opening.options.stream;
  if (opened_for && opened_for->kind() != stream.kind()) misuse(0, "the channel was opened for another kind of stream");
}

void ChannelEnd::refuse_bound() const {
  check();
  misuse(epoch(), bound_ == kClosed    ? "the channel is closed here"
                  : bound_ == kKernels ? "kernels drive this channel"
                                       : "a plan drives this channel");
}

void ChannelEnd::join_plan() {
  check_free();
  if (planned_) misuse(epoch(), "the channel is in a plan already");
  planned_ = true;
}

std::string ChannelEnd::describe() const {
  const std::lock_guard lock(world_->mutex());
  const bool sends = opening.key.role == Role::sender;
  std::string text = opening.name.empty() ? "" : "'" + opening.name + "' ";
  text += (sends ? "to rank " : "from rank ") + std::to_string(opening.peer) + ", tag " +
          std::to_string(opening.key.tag) + ", " + std::to_string(opening.options.depth) + " x " +
          std::to_string(slot_bytes) + " bytes: ";
  if (remote_id == 0 || undecided_) return text + "not connected yet";
  if (stale_)
    text += "the GPU's driver still has the pages that were at these addresses before: kernels must not use them; ";
  if (gpus() != nullptr && device::words_by_kernels())
    text += "kernels wait on its GPU's streams, and write words (SLUICE_GPU_WAITS); ";
  if (!sends) return text + (landing_ == nullptr ? "closed" : landing_->describe());
  if (put_ == nullptr) return text + "the peer has closed its end";
  constexpr const char* kBy[] = {"fired by the stream", "fired by the NIC", "fired by the engine"};
  text += put_->describe();
  const auto& block = detail::SliceAccess::block(opening.memory);
  if (block != nullptr && block->space != Space::host && !block->gpus_here)
    text += ", from host memory, since there is no GPU here";
  return text + "; " + kBy[static_cast<int>(put_->fired())];
}

void ChannelEnd::close(std::optional<Timeout> timeout) {
  if (closed_) return;
  World::reclaim();
  const Timeout stated = timeout.value_or(world_->limits().connect);
  base::Limit limit(stated);
  if (!close_within(limit)) {
    throw error(Code::timeout, epoch(),
                "not closed after " + base::duration_text(stated) + ": its memory is still in use; " + state());
  }
}

bool ChannelEnd::close_within(base::Limit& limit) {
  if (!await_kernels(limit)) return false;
  bound_ = kClosed;
  for (kernel::Count* const count : {counted_.load(), fired_.load()}) {
    if (count != nullptr) std::atomic_ref(count->closed).store(1);  // what begins from here on finds nothing to be done
  }
  lower_limit(0);
  if (!await_decided(limit)) return false;  // closing announces their number
  if (!world_->close(*this, limit)) return false;
  if (rung_ != nullptr) world_->engine().forget(*rung_);
  shut_end();  // the peer's memory is not ours to write any more
  closed_ = true;
  if (gpus() != nullptr) {  // all that was enqueued has passed
    device::remove_user(*this);
    reached_.clear();
    device::reap();
  }
  return true;
}

std::optional<std::pair<Code, std::string>> ChannelEnd::failure() const {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) return std::nullopt;
  return std::pair(failure_->code(), std::string(failure_->what()));
}

void ChannelEnd::abandon(std::shared_ptr<ChannelEnd> end) noexcept {
  if (end == nullptr || !end->origin.here() || end->closed_) return;
  std::optional<Timeout> limit;
  if (std::uncaught_exceptions() > 0) {
    // This rank is on its way out with the channel open: the peer is told that it is lost, and gets a moment to let go.
    end->leave("rank " + std::to_string(end->opening.rank) + " left with an exception");
    limit = time_to_leave(end->world_->limits().connect);
  }
  try {
    end->close(limit);
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, std::string("kept what a channel still uses: ") + reason.what());
    World::keep(std::move(end));
  }
}

}  // namespace sluice::runtime
