// SPDX-License-Identifier: Apache-2.0
// The common part of both ends of a channel: connecting, failing, closing.
#include "runtime/channel.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/text.hpp"
#include "runtime/handles.hpp"
#include "runtime/kept.hpp"
#include "runtime/put_by_stream.hpp"
#include "runtime/registry.hpp"

namespace sluice::runtime {
namespace {

constexpr const char* kNotReached = "the peer's memory cannot be reached: ";

/// The parts of two texts from the first word on in which they differ, cut off if long.
std::pair<std::string, std::string> from_first_unlike_word(const std::string& a, const std::string& b) {
  constexpr std::size_t kShown = 80;
  const auto unlike = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  const std::size_t begin = unlike == 0 ? 0 : a.rfind(' ', static_cast<std::size_t>(unlike) - 1) + 1;  // npos + 1: 0
  return {a.substr(begin, kShown), b.substr(begin, kShown)};
}

/// Names a property in which the two ends must agree and do not; empty: there is none.
std::string disagreement(const EndInfo& end, const RemoteEnd& remote) {
  if (end.of_window()) return {};
  const auto differ = [&](const std::string& here, const std::string& there) {
    return "the two ends disagree: " + here + " a slot here, " + there + " at rank " + std::to_string(end.opening.peer);
  };
  const std::string& ours = end.opening.contents;
  const std::string& theirs = remote.contents;
  if (!ours.empty() && !theirs.empty() && ours != theirs) {
    const auto [here, there] = from_first_unlike_word(ours, theirs);
    return differ('"' + here + '"', '"' + there + '"');
  }
  if (remote.slot_bytes != end.slot_bytes)
    return differ(std::to_string(end.slot_bytes) + " bytes", std::to_string(remote.slot_bytes));
  return {};
}

}  // namespace

ChannelEnd::ChannelEnd(std::shared_ptr<const Services> services, Opening what)
    : ChannelEnd(std::move(services), std::move(what), backends::Signal{}) {
  const auto standing = opening.options.depth >= kDeep ? Standing::alone : Standing::together;
  word_ = of_window() ? backends::Signal{&done, &done_parking, {}}  // no peer raises a word of it
                      : services_->registry.take_word(opening.key.world_peer, standing);
  if (!of_window()) failure_.poisons(word_);
}

ChannelEnd::ChannelEnd(std::shared_ptr<const Services> services, Opening what, const backends::Signal& word)
    : EndInfo(std::move(what), services->registry.next_id()), services_(std::move(services)), word_(word),
      races_(opening.rank, opening.peer, opening.key.tag, sends(), depth()) {
  if (word_.word != nullptr) failure_.poisons(word_);
  if (base::trace::on()) traced = trace_channel(services_->rank, services_->track);
}

ChannelEnd::~ChannelEnd() {
  if (fate_owner_ != nullptr) fate_owner_->leave(*this);
  if (checked()) checks_->watched.end();
  landing_.reset();  // first: it may raise the words
  if (visible_ != nullptr) base::give_back(*visible_);
  if (of_window()) return;
  services_->registry.give_back_word(opening.key.world_peer, word_);
  for (const auto& word : more_words_) services_->registry.give_back_word(opening.key.world_peer, word);
}

backends::Key ChannelEnd::open_landing(backends::Link& link, std::vector<backends::Signal> more) {
  more_words_ = std::move(more);
  for (auto& word : more_words_) {
    word.parking = word_.parking;  // a sleeper waits for all words at once
    failure_.poisons(word);
  }
  std::vector<backends::Signal> words{word_};
  words.insert(words.end(), more_words_.begin(), more_words_.end());
  backends::Landed landed = link.land(target(), words);
  landing_ = std::move(landed.landing);
  return std::move(landed.key);
}

/// A sleeper waits at one place for all words, so this word's waker wakes that one. In memory that a peer maps, both
/// have to be in one segment; elsewhere the stream that puts has raised this word before the other.
backends::Key ChannelEnd::land_lengths(backends::Link& link, backends::Signal signal) {
  if (signal.memory.segment == word_.memory.segment) signal.parking = word_.parking;
  failure_.poisons(signal);
  more_words_.push_back(signal);
  auto [both, key] = LengthsLanding::land(link, std::move(landing_), opening.options.depth, signal);
  landing_ = std::move(both);
  return std::move(key);
}

void ChannelEnd::connect(backends::Link& link, RemoteEnd remote) {
  remote_id = remote.id;
  if (const std::string why = disagreement(*this, remote); !why.empty()) record(Code::mismatch, why, true);
  if (remote.failure) peer_failed(remote.failure->first, remote.failure->second);
  try {
    // The memory of a peer's end that was closed before it was announced here may be freed already.
    if (!failed() && !closing.told() && (!remote.final || remote.final->wanted > 0)) put_ = prepare(link, remote);
    if (put_ != nullptr && remote.lengths) {
      auto both = std::make_unique<LengthsPut>(*this, std::move(put_), link, std::move(*remote.lengths), remote.depth,
                                               slot_bytes);
      lengths_ = both.get();
      put_ = std::move(both);
      if (failed()) lengths()->shut();
    }
  } catch (const backends::Unreachable& reason) {
    record(Code::unsupported, std::string(kNotReached) + reason.what(), true);
  } catch (const std::exception& reason) {
    record(Code::out_of_resources, std::string(kNotReached) + reason.what(), true);
  }
  if (put_ == nullptr) shut_end();
  rung_ = put_ == nullptr ? nullptr : put_->by_bell;
  mapped_ = put_ == nullptr ? nullptr : put_->by_stores;
  if (lengths() != nullptr) lengths()->watch(services_->engine);
  if (rung_ != nullptr) {
    if (sends()) {
      services_->engine.watch(*rung_);
    } else {
      services_->engine.watch_credits(*rung_, opening.options.depth, *word_.word);
    }
  }
  helper_ = sends() && rung_ == nullptr && !posts_ ? nullptr : services_->engine.helper();
  peer_depth_.store(static_cast<std::uint64_t>(remote.depth), std::memory_order_release);
  if (put_ != nullptr && put_->obstacle) services_->registry.send_way(*this, *put_->obstacle);
  undecided_ = put_ != nullptr && landing_ != nullptr && landing_->way() == backends::Landing::Way::undecided;
  if (!undecided_) begin_working();
  if (remote.final) peer_closed(*remote.final);
}

void ChannelEnd::find_helper() noexcept { helper_ = services_->engine.helper(); }

void ChannelEnd::work_alone() {
  find_helper();
  begin_working();
}

std::unique_ptr<backends::Put> ChannelEnd::prepare(backends::Link& link, RemoteEnd& remote) {
  return link.prepare(sends() ? slots : backends::Slots{}, *this, std::move(remote.key));
}

void ChannelEnd::stop_posting() noexcept {
  if (rung_ != nullptr) services_->engine.forget(*rung_);
  if (lengths() != nullptr) lengths()->forget(services_->engine);
}

void ChannelEnd::decide(const std::string& obstacle) {
  if (!std::exchange(undecided_, false)) return;  // the peer has closed meanwhile
  if (landing_ != nullptr) landing_->decide(obstacle);
  begin_working();
}

void ChannelEnd::begin_working() {
  reach_named_stream();
  if (!failed()) base::raise(connected_word_, 1, done_parking);
  word_.parking->wake();  // hosts that wait for earlier puts of the peer may look at all rails' words now
}

void ChannelEnd::peer_closed(const Final& final) {
  // The peer may never report how it reaches the target, and nothing lands.
  if (final.wanted == 0 && std::exchange(undecided_, false)) begin_working();
  closing.theirs = final;
  if (sends() && has_written(final)) shut_end();  // before a put can be refused: what is enqueued beyond moves nothing
  lower_limit(last_possible(final));
  base::heavy_fence();
  word_.parking->wake();  // a host that waits for an epoch that will never be put
}

bool ChannelEnd::complete_without(const Final& final) {
  shut_end();
  if (of_window()) return written();  // accesses under way have got no answer
  if (!sends()) return landed(final.wanted);
  // Credits that the peer's streams would still have given.
  if (word_.word->value.load(std::memory_order_relaxed) < final.credited)
    base::raise(*word_.word, final.credited, *word_.parking);
  return true;
}

bool ChannelEnd::landed(std::uint64_t epoch) const noexcept {
  const auto reached = [&](const backends::Signal& word) { return base::reached(*word.word, epoch); };
  return reached(word_) && connected() && std::all_of(more_words_.begin(), more_words_.end(), reached);
}

void ChannelEnd::peer_lost(Code code, const std::string& what) noexcept {
  if (lengths() != nullptr) lengths()->shut();
  const bool parted = closing.ours && closing.exposed != Exposed::open;
  closing.lose_peer();
  if (parted && (passed() || !sends())) return shut_end();
  if (closing.theirs && complete_without(*closing.theirs)) return;
  record(code, what, false);
}

void ChannelEnd::leave_destroyed(const std::string& why) noexcept {
  leaves_because_ = why;
  const auto failure =
      std::make_shared<device::Failure>(error(Code::peer_lost, epoch(), why), std::make_shared<Cause>(), true);
  failure->tell();  // whoever has thrown the exception knows
  (void)failure->take();
  record(failure, why, true);
}

void ChannelEnd::leave_in_front(const std::string& why) noexcept {
  const auto& cause = services_->failures.exceptions();
  record(std::make_shared<device::Failure>(error(Code::peer_lost, epoch(), why), cause, true), why, true);
}

void ChannelEnd::record(Code code, const std::string& what, bool tell_peer, std::shared_ptr<Cause> cause) noexcept {
  if (failed()) return;
  if (cause == nullptr) cause = services_->failures.cause_of(code, what, opening);
  record(std::make_shared<device::Failure>(error(code, epoch(), what), std::move(cause)), what, tell_peer);
}

void ChannelEnd::record(const SharedFailure& failure, const std::string& what, bool tell_peer) noexcept {
  SharedFate* const fate = fate_.load();
  const auto kept = fate == nullptr ? nullptr : fate_owner_;  // the end may be destroyed once its waits have ended
  const auto locked = fate == nullptr ? std::unique_lock<std::mutex>() : fate->lock();
  if (!failure_.record(failure)) return;
  if (lengths() != nullptr) lengths()->shut();
  const Code code = failure->error().code();
  // The loss of a peer changes nothing for an end that was never used, nor for several of which none was.
  const bool used = epoch() > 0 || (fate != nullptr && fate->any_used());
  const bool matters = code != Code::peer_lost || used;
  const auto fail_end = [&] {
    refuse_verbs();
    if (fate != nullptr) fate->fail_others(*this, failure);
  };
  if (quiet()) {
    fail_end();
  } else {
    services_->failures.record(failure, matters, fail_end);
  }
  if (fate == nullptr && fate_.load() != nullptr) fate_.load()->catch_up(*this);
  release_failed(what, tell_peer);
  if (fate != nullptr) fate->release_others(*this, what);
}

/// Both at once: after `check` has thrown the failure, every verb refuses.
void ChannelEnd::refuse_verbs() noexcept {
  set_failed();
  limit_.store(0);  // then: a caller that meets the limit says why
}

bool ChannelEnd::begin_to_fail(const SharedFailure& others) noexcept {
  if (!failure_.record(others)) return false;
  if (lengths() != nullptr) lengths()->shut();
  refuse_verbs();
  return true;
}

void ChannelEnd::release_failed(const std::string& what, bool tell_peer) noexcept {
  hold_kernels();  // before the poison, which wakes waiting kernels
  failure_.poison();
  if (!connected()) base::raise(connected_word_, base::kPoison, done_parking);
  done_parking.wake();
  services_->registry.notice_failure(*this, failure()->error().code(), what, tell_peer);
  if (base::trace::on()) base::trace::mark("failed", traced, what);
}

void ChannelEnd::share(std::shared_ptr<SharedFate> fate) noexcept {
  fate_owner_ = std::move(fate);
  fate_.store(fate_owner_.get());
}

void ChannelEnd::fail_for(const HostStream::Impl& stream) noexcept {
  const HostStream::Impl::Stop& stop = *stream.stopped_by();
  record(Code::aborted, stop.why(), true, stop.failure->cause());
}

bool ChannelEnd::holds_up(const ChannelEnd& other) const noexcept {
  return std::any_of(other.streams_.begin(), other.streams_.end(), [this](Stream stream) {
    if (!device::of_gpu(stream)) return sleeper() == stream.handle() && stream.handle() != nullptr;
    return !passed() && std::find(streams_.begin(), streams_.end(), stream) != streams_.end();
  });
}

void ChannelEnd::refuse(std::uint64_t epoch) const {
  check();
  if (bound_ == kClosed) misuse(epoch, std::string("the ") + noun() + " is closed here");
  const std::string by = ": rank " + std::to_string(opening.peer) + " has closed its end";
  if (of_window()) throw error(Code::closed, epoch, "rank " + std::to_string(opening.peer) + " has closed the window");
  if (sends()) misuse(epoch, "put " + std::to_string(epoch) + " will never be credited" + by);
  throw error(Code::closed, epoch, "epoch " + std::to_string(epoch) + " will never come" + by);
}

void ChannelEnd::refuse_count(std::size_t count) const {
  throw error(Code::bad_argument, epoch() + 1,
              std::to_string(count) + " epochs in one call, and this end has " + std::to_string(depth()) + " slots");
}

void ChannelEnd::enqueue_all(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  if (!connected() || put_ == nullptr) return device::raise(lane, done, last, done_parking);
  if (rung_ != nullptr && rung_->most_enqueued() != backends::RungPut::kUnlimited) {
    for (std::uint64_t epoch = first; epoch <= last; ++epoch) enqueue_otherwise(lane, epoch, whole_epoch());
    return;
  }
  if constexpr (base::races::kOn) {
    for (std::uint64_t epoch = first; epoch <= last; ++epoch) tell_of_firing(lane, epoch, whole_epoch());
  }
  const auto kept = services_to_ring(lane);
  put_->enqueue_all(lane, first, last);
}

void ChannelEnd::count_for_plan() {
  epochs_.enqueue(epoch() + 1);
  if (epoch() > limit_.load(std::memory_order_acquire)) services_->registry.look_again(*this);
}

void ChannelEnd::lower_limit(std::uint64_t limit) noexcept {
  std::uint64_t now = limit_.load();
  while (limit < now && !limit_.compare_exchange_weak(now, limit)) {
  }
}

void ChannelEnd::join_plan() {
  check_free();
  if (planned_) misuse(epoch(), "the channel is in a plan already");
  planned_ = true;
}

std::string ChannelEnd::describe() const {
  const std::lock_guard lock(services_->registry.mutex());
  std::string text = (opening.name.empty() ? "" : "'" + opening.name + "' ") + direction();
  if (!of_window()) {
    text += ", " + std::to_string(opening.options.depth) + " x " + std::to_string(slot_bytes) + " bytes";
  }
  text += ": ";
  if (remote_id == 0 || undecided_) return text + "not connected yet";
  if (stale_)
    text += "the GPU's driver still has the pages that were at these addresses before: kernels must not use them; ";
  if (gpu_use() != nullptr && device::words_by_kernels())
    text += "kernels wait on its GPU's streams, and write words (SLUICE_GPU_WAITS); ";
  if (!sends()) return text + (landing_ == nullptr ? "closed" : landing_->describe());
  if (put_ == nullptr) return text + "the peer has closed its end";
  constexpr const char* kBy[] = {"fired by the stream", "fired by the NIC", "fired by the engine"};
  text += put_->describe();
  const auto& block = detail::SliceAccess::block(opening.memory);
  if (block != nullptr && block->space != Space::host && !block->gpus_here)
    text += ", from host memory, since there is no GPU here";
  return text + "; " + kBy[static_cast<int>(put_->fired_by)];
}

bool ChannelEnd::is_put_by_stream() const {
  const std::lock_guard lock(services_->registry.mutex());
  return put_ != nullptr && put_->fired_by == backends::Fired::by_stream;
}

void ChannelEnd::shut_end() noexcept {
  set_shut();
  hold_kernels();
  done_parking.wake();  // a host that drains
  base::heavy_fence();
}

void ChannelEnd::close(std::optional<Timeout> timeout) {
  if (closed_) return;
  reclaim();
  const Timeout stated = timeout.value_or(services_->limits.connect);
  base::Limit limit(stated);
  if (!close_within(limit)) throw not_closed(stated);
}

Error ChannelEnd::not_closed(Timeout stated) const {
  return error(Code::timeout, epoch(),
               "not closed" + (stated > Timeout::zero() ? " after " + base::duration_text(stated) : std::string()) +
                   ": its memory is still in use; " + state());
}

bool ChannelEnd::close_within(base::Limit& limit) {
  if (!close_parts(limit)) return false;
  if (checked()) memory_is_gone(nullptr);
  if (!await_counts(&Epochs::kernels_have_begun, limit)) return false;
  bound_ = kClosed;
  epochs_.close_for_kernels();
  releases_.close_for_kernels();
  lower_limit(0);
  if (!await_counts(&Epochs::is_decided, limit)) return false;  // closing announces the number of epochs
  if (!services_->registry.close(*this, limit)) return false;
  stop_posting();
  closed_ = true;
  if (checked()) checks_->watched.end();
  races_.all_taken_back();
  lent_.clear();
  if (GpuUse* const use = gpu_use()) {  // all enqueued work has completed
    device::remove_user(*this);
    use->give_up();
    device::reap();
  }
  return true;
}

ChannelEnd* close_all(std::span<ChannelEnd* const> ends, base::Limit& limit) {
  base::Limit at_once(Timeout::zero());
  for (ChannelEnd* const end : ends) (void)end->close_within(at_once);
  const auto open = std::ranges::find_if_not(ends, [&](ChannelEnd* end) { return end->close_within(limit); });
  return open == ends.end() ? nullptr : *open;
}

}  // namespace sluice::runtime

namespace sluice {

using detail::usable_here;

ChannelHandle& ChannelHandle::operator=(ChannelHandle&& other) noexcept {
  if (this != &other) runtime::abandon(std::exchange(end_, std::move(other.end_)));
  return *this;
}
ChannelHandle::~ChannelHandle() { runtime::abandon(std::move(end_)); }

bool ChannelHandle::connected() const {
  usable_here(end_).check();
  return end_->connected();
}
void ChannelHandle::wait_connected(std::optional<Timeout> timeout) { usable_here(end_).wait_connected(timeout); }
void ChannelHandle::close(std::optional<Timeout> timeout) {
  const runtime::ChannelEnd::Use use(usable_here(end_), runtime::Verb::close, __builtin_return_address(0));
  end_->close(timeout);
}
Rank ChannelHandle::peer() const noexcept { return end_ == nullptr ? -1 : end_->opening.peer; }
Tag ChannelHandle::tag() const noexcept { return end_ == nullptr ? 0 : end_->opening.key.tag; }
std::uint64_t ChannelHandle::epoch() const noexcept { return end_ == nullptr ? 0 : end_->epoch(); }
bool detail::is_put_by_stream(const Sender& sender) {
  return usable_here(ChannelAccess::end(sender)).is_put_by_stream();
}
std::string ChannelHandle::describe() const { return usable_here(end_).describe(); }

}  // namespace sluice
