// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.hpp"

#include <sched.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <system_error>

#include "base/threads.hpp"

namespace sluice::runtime {

using backends::AfterTurn;
using backends::Haste;

namespace {

// The engine's thread checks this long after another thread's last turn, at the latest, whether others still take
// turns.
constexpr auto kAttended = std::chrono::microseconds(1000);
constexpr auto kPutOffAfter = kAttended / 2;

constexpr auto kNoTime = base::Clock::duration::zero();

int at_most(int patience, int limit) noexcept { return patience < 0 ? limit : std::min(patience, limit); }

}  // namespace

Engine::Engine(SocketService& service, Options options)
    : service_(service), options_(std::move(options)),
      bell_(options_.bell != nullptr ? options_.bell : std::make_shared<base::Waker>()),
      alarm_(base::open_with_room([] { return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC); })) {
  if (!alarm_) base::throw_not_opened("timerfd_create");
  sockets_.reserve(64);
}

Engine::~Engine() { stop(); }

void Engine::start(base::trace::Track track) {
  try {
    const base::SignalsBlocked blocked;  // signals are the program's, not ours
    thread_ = std::thread([this, track] { loop(track); });
  } catch (const std::system_error& reason) {
    throw base::no_thread("the engine", reason.code().value());
  }
  pthread_setname_np(thread_.native_handle(), "sluice-engine");
  if (options_.cpu < 0) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (options_.cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(options_.cpu), &cores);
  if (pthread_setaffinity_np(thread_.native_handle(), sizeof cores, &cores) != 0) {
    throw std::invalid_argument("SLUICE_ENGINE_CPU: there is no core " + std::to_string(options_.cpu) +
                                " for the engine");
  }
}

void Engine::stop() {
  stopping_.store(true);
  wake();
  if (thread_.joinable()) thread_.join();
}

void Engine::loop(base::trace::Track track) {
  const base::trace::OnTrack here(track);
  while (!stopping_.load()) {
    sockets_.clear();
    sockets_.push_back({bell_->fd().get(), POLLIN, 0});
    sockets_.push_back({alarm_.get(), POLLIN, 0});
    const int patience = service_.prepare(sockets_);
    sleep(rest(patience));
    service_.serve(sockets_);
  }
}

/// Takes a turn if no other thread does. Returns how long to sleep then; 0: something is under way.
int Engine::rest(int patience) {
  const std::uint32_t helped = helped_.load(std::memory_order_relaxed);
  const bool attended = helped != helped_before_ && !listens_.load();
  helped_before_ = helped;
  attended_.store(attended);
  if (attended) {
    if (credits_.any_wait()) turn();
    answer();  // requests that came in the turn of a thread that does not wait
    helped_before_ = helped_.load(std::memory_order_relaxed);  // answers are put by this thread, which is no help
    set_alarm();
    return patience;
  }
  const bool more = turn();
  answer(true);
  helped_before_ = helped_.load(std::memory_order_relaxed);
  if (more || (left_.load() == AfterTurn::words && until_next_look() == kNoTime)) return 0;
  const std::lock_guard turn(turn_);
  for (auto* transport : transports_) {
    const int limit = transport->rest(sockets_);
    if (limit != backends::Transport::kNoLimit) patience = at_most(patience, limit);
  }
  return patience;
}

void Engine::sleep(int timeout_ms) {
  if (timeout_ms == 0) pause();
  asleep_.store(true);
  base::Clock::duration timeout = timeout_ms < 0 ? base::Clock::duration::max() : std::chrono::milliseconds(timeout_ms);
  if (!attended_.load()) {
    const AfterTurn left = again_.load() ? AfterTurn::work : left_.load();
    if (left == AfterTurn::work) timeout = kNoTime;
    if (left == AfterTurn::words) timeout = std::min(timeout, until_next_look());
  }
  if (stopping_.load() || requests_.load()) timeout = kNoTime;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{seconds.count(), (timeout - seconds).count()};
  if (ppoll(sockets_.data(), sockets_.size(), timeout == base::Clock::duration::max() ? nullptr : &limit, nullptr) <
      0) {
    for (auto& socket : sockets_) socket.revents = 0;  // interrupted: nothing was looked at
  }
  asleep_.store(false);
  for (const pollfd& own : {sockets_[0], sockets_[1]}) {
    std::uint64_t count = 0;
    if ((own.revents & POLLIN) != 0) [[maybe_unused]]
      const auto got = read(own.fd, &count, sizeof count);
  }
  const bool alarmed = (sockets_[1].revents & POLLIN) != 0;
  if (alarmed) helped_before_ = helped_.load(std::memory_order_relaxed);  // no other thread has put it off: take over
}

/// The engine polls words without a pause at first, then the less often the longer nothing happens: it sees a change
/// after a sixty-fourth of the quiet time at most, and within 0.2 ms.
base::Clock::duration Engine::until_next_look() const noexcept {
  constexpr base::Clock::duration kShortestPause = std::chrono::microseconds(50);  // that a thread can sleep
  constexpr base::Clock::duration kLongestPause = std::chrono::microseconds(200);
  const auto pause = (base::Clock::now() - quiet_since_.load(std::memory_order_relaxed)) / 64;
  return pause < kShortestPause ? kNoTime : std::min(pause, kLongestPause);
}

/// Also puts off an alarm that is set.
void Engine::set_alarm() noexcept {
  constexpr itimerspec kOnce{{}, {0, std::chrono::nanoseconds(kAttended).count()}};
  alarm_set_.store(base::Clock::now(), std::memory_order_relaxed);
  timerfd_settime(alarm_.get(), 0, &kOnce, nullptr);
}

/// Puts are under way: the engine stays awake, but lets threads that compute run first.
void Engine::pause() const {
  if (options_.poll > base::Clock::duration::zero()) {
    std::this_thread::sleep_for(options_.poll);
  } else {
    sched_yield();
  }
}

void Engine::wake() noexcept { bell_->ring(); }

void Engine::heard(backends::BellEntry& bell) noexcept {
  const Haste haste = bell.haste.load(std::memory_order_relaxed);
  if (!bell.listed.exchange(true, std::memory_order_acq_rel)) {
    bell.next = rung_bells_.load(std::memory_order_relaxed);
    while (!rung_bells_.compare_exchange_weak(bell.next, &bell)) {
    }
  }
  heard(haste);
}

void Engine::heard(Haste haste) noexcept {
  // An engine that is not attended may be about to sleep, and not have seen the bell.
  if (haste == Haste::soon && credits_.put_off() && attended_.load()) return;
  const bool polls = left_.load() == AfterTurn::words;
  if (polls) begin_quiet();  // as there is something new to wait for
  again_.store(true);
  help_once();
  leave_requests();
  if (polls) leave_to_thread();
}

void Engine::help() noexcept {
  help_once();
  answer();
}

void Engine::help_once() noexcept {
  helped();  // the thread that rang takes the turn itself if it is free: no change of thread
  if (turn()) leave_to_thread();
}

/// False: another thread answers, or this one further up; it will look again.
bool Engine::begin_answers() noexcept { return answers_.fetch_add(1) == 0; }

/// Like `begin_answers`, but does not begin. False: no thread answers.
bool Engine::leave_answers() noexcept {
  std::uint32_t now = answers_.load();
  while (now != 0 && !answers_.compare_exchange_weak(now, now + 1)) {
  }
  return now != 0;
}

void Engine::end_answers(bool alone) noexcept {
  std::uint32_t seen = 0;
  do {
    seen = answers_.load();
    requests_.store(false);  // first: those that turns find from now on are news
    for (Responder* const responder : responders_) responder->respond(alone);
    if (any_requests()) requests_.store(true);
  } while (!answers_.compare_exchange_strong(seen, 0));
}

/// Called with the turn, or by the thread that answers.
bool Engine::any_requests() const noexcept {
  return std::ranges::any_of(responders_, [](Responder* one) { return one->has_requests(); });
}

/// Behind a turn.
void Engine::answer(bool alone) noexcept {
  if (requests_.load() && begin_answers()) end_answers(alone);
}

void Engine::look() noexcept {
  look_once();
  answer();
}

void Engine::look_only() noexcept {
  look_once();
  leave_requests();
}

void Engine::look_once() noexcept {
  helped();
  bool more = false;
  {
    const std::lock_guard turn(turn_);
    more = work();
  }
  if (more || again_.load()) leave_to_thread();
}

/// To the thread that answers, else to the engine's.
void Engine::leave_requests() noexcept {
  if (requests_.load() && !leave_answers() && asleep_.load()) wake();
}

void Engine::helped() noexcept {
  helped_.store(helped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (attended_.load() && base::Clock::now() - alarm_set_.load(std::memory_order_relaxed) > kPutOffAfter) set_alarm();
}

/// The engine's thread finishes what stays under way.
void Engine::leave_to_thread() noexcept {
  if (asleep_.load() && !attended_.load()) wake();
}

bool Engine::turn() noexcept {
  bool more = false;
  // A bell that rings during a turn is seen by that turn, or by the next round of this loop, in whichever thread.
  do {
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn.owns_lock()) return true;
    again_.store(false);
    more = work();
  } while (again_.load());
  return more;
}

bool Engine::work() {
  AfterTurn left = AfterTurn::nothing;
  bool credits_posted = false;
  credits_.begin_turn();
  collect();
  const auto post_credits = [&] {
    if (std::exchange(credits_posted, true)) return;
    const bool were_put_off = credits_.end_putting_off();
    collect();
    left = std::max(left, credits_.post(attended_.load(), were_put_off));
  };
  bool listens = false;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < rung_.size(); ++i) {  // it grows where credits are posted in between
    Member& put = *rung_[i];
    listens |= put.posting->awaited();
    if (put.posting->next_is_long()) post_credits();
    const AfterTurn after = put.posting->post_rung();
    left = std::max(left, after);
    put.rung = after != AfterTurn::nothing;
    if (put.rung) rung_[kept++] = &put;
  }
  rung_.resize(kept);
  post_credits();
  for (auto* transport : transports_) {
    const AfterTurn of_transport = transport->poll();
    listens |= of_transport == AfterTurn::words;
    left = std::max(left, of_transport);
  }
  const auto note = [&](AfterTurn result) {
    listens |= result != AfterTurn::nothing;
    left = std::max(left, result);
  };
  for (auto* put : armed_ahead_) note(put->arm_ahead());
  for (auto* end : ends_) note(end->poll());
  if (any_requests()) requests_.store(true);
  listens_.store(listens, std::memory_order_relaxed);
  const bool polled = left_.load(std::memory_order_relaxed) == AfterTurn::words;
  if (left == AfterTurn::words && !polled) begin_quiet();
  left_.store(left);
  return left == AfterTurn::work || (left == AfterTurn::words && !polled);
}

/// Looks at what the bells fire that were rung, in the order of their rings.
void Engine::collect() {
  backends::BellEntry* first = nullptr;
  for (auto* next = rung_bells_.exchange(nullptr); next != nullptr;) {
    auto* const one = std::exchange(next, next->next);
    one->next = std::exchange(first, one);
  }
  while (first != nullptr) {
    auto& bell = static_cast<Bell&>(*std::exchange(first, first->next));
    bell.listed.exchange(false, std::memory_order_acq_rel);  // before its word is read: a later ring lists it again
    for (Member* const member : bell.members) look_at(*member);
  }
}

/// In the next turn, or this one.
void Engine::look_at(Member& member) {
  if (member.posting == nullptr) return;
  member.posting->heard();  // also if it is rung: what it had to do before may have left with another put
  if (std::exchange(member.rung, true)) return;
  if (member.behind) {
    credits_.rung(member);
  } else {
    rung_.push_back(&member);
  }
}

void Engine::look_at(const backends::RungPut& put) {
  if (const auto found = members_.find(&put); found != members_.end()) look_at(found->second);
}

void Engine::join(backends::Doorbell& bell, Member& member, Haste haste) {
  member.bell = static_cast<Bell*>(bell.entry());
  if (member.bell == nullptr) {
    if (unused_bells_.empty()) {
      if (unused_bells_.capacity() <= bells_.size()) unused_bells_.reserve(2 * bells_.size() + 1);  // for `forget`
      unused_bells_.push_back(&bells_.emplace_back(*this, haste));
    }
    member.bell = unused_bells_.back();
    unused_bells_.pop_back();
    member.bell->haste.store(haste);
    bell.listen(member.bell);
  }
  member.place = member.bell->members.insert(member.bell->members.end(), &member);
}

void Engine::leave_bell(backends::Doorbell& bell, Member& member) {
  member.bell->members.erase(member.place);
  if (!member.bell->members.empty()) return;
  bell.listen(nullptr);
  unused_bells_.push_back(member.bell);
}

void Engine::watch(backends::Doorbell& bell, ByBell what, const void* who, Haste haste) {
  const std::lock_guard turn(turn_);
  Member& member = members_[who];
  static_cast<ByBell&>(member) = what;
  join(bell, member, haste);
  if (rung_.capacity() < 2 * members_.size()) {  // a turn allocates nothing, even if all are rung for again in between
    rung_.reserve(4 * members_.size());
    credits_.reserve(4 * members_.size());
  }
  watched_.fetch_add(1);
}

void Engine::watch_credits(backends::RungPut& put, int depth, const base::Word& landed) {
  if (put.posting == nullptr) return watch(put);
  watch(put.bell(), {put.posting, false, true, static_cast<std::uint64_t>(depth), &landed}, &put, Haste::soon);
}

void Engine::post_behind(const backends::RungPut& put) {
  const std::lock_guard turn(turn_);
  if (const auto found = members_.find(&put); found != members_.end()) found->second.behind = true;
}

void Engine::move(backends::RungPut& put, const std::shared_ptr<backends::Doorbell>& bell, std::uint64_t epochs) {
  const std::lock_guard turn(turn_);
  Member& member = members_.at(&put);
  leave_bell(put.bell(), member);
  join(*bell, member, Haste::now);
  put.share(bell, epochs);
}

void Engine::let_kernels_ring(backends::RungPut& put, const kernel::Count& epochs) {
  const std::lock_guard turn(turn_);
  put.let_kernels_ring(epochs);
  look_at(put);  // no ring will list it
  arm_ahead(put);
}

void Engine::forget_refused_rings(backends::RungPut& put) noexcept {
  const std::lock_guard turn(turn_);
  put.forget_refused_rings();
  look_at(put);
}

/// Unless the engine posts the put.
void Engine::arm_ahead(backends::RungPut& put) {
  if (put.posting != nullptr) return;
  if (std::find(armed_ahead_.begin(), armed_ahead_.end(), &put) == armed_ahead_.end()) armed_ahead_.push_back(&put);
}

void Engine::watch(Pollable& end) {
  const std::lock_guard turn(turn_);
  ends_.push_back(&end);
  watched_.fetch_add(1);
}

void Engine::forget(Pollable& end) {
  const std::lock_guard turn(turn_);
  std::erase(ends_, &end);
  watched_.fetch_sub(1);
}

void Engine::watch(Responder& responder) {
  between_answers([&] { responders_.push_back(&responder); });
}

void Engine::forget(Responder& responder) {
  between_answers([&] { std::erase(responders_, &responder); });
}

void Engine::reach(backends::RungPut& put, device::Driver& driver) {
  const std::lock_guard turn(turn_);
  put.reach_from(driver);
  arm_ahead(put);
}

void Engine::forget(backends::Doorbell& bell, const void* who, const backends::RungPut* put) {
  const std::lock_guard turn(turn_);
  std::erase(armed_ahead_, put);
  const auto found = members_.find(who);
  if (found == members_.end()) return;
  Member& member = found->second;
  if (member.rung) {
    std::erase(rung_, &member);
    credits_.forget(member);
  }
  leave_bell(bell, member);
  members_.erase(found);
  watched_.fetch_sub(1);
}

}  // namespace sluice::runtime
