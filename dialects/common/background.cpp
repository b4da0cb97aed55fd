// SPDX-License-Identifier: Apache-2.0
#include "dialects/common/background.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/words.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/common/wait_until.hpp"

namespace sluice::stream_mpi {
namespace {

// A look takes about 20 us from the thread whose core it is, so a program that waits for each step at once is looked
// at less and less often. Waking the thread for each step would be slower still.
constexpr std::chrono::milliseconds kUntilMostAreAwaited(1);
constexpr std::chrono::milliseconds kLongestPause(8);
constexpr int kLooks = 8;  // in vain, until the thread rests

}  // namespace

Background& Background::only() {
  static Background& made = *new Background;
  return made;
}

Background::Listed::Listed(Pending& pending) : pending_(pending) {
  const std::lock_guard lock(only().mutex_);
  only().all_.insert(&pending_);
}

Background::Listed::~Listed() {
  Background& one = only();
  {
    std::unique_lock lock(one.mutex_);
    one.returned_.wait(lock, [&] { return one.current_ != &pending_; });
    one.all_.erase(&pending_);
  }
  if (one.state_.load() == State::asleep) one.waits_.wake();  // it keeps the ends that it waits for
}

void Background::notice() noexcept {
  Background& one = only();
  base::light_fence();  // either this sees that the thread rests, or the thread sees what was left
  if (one.state_.load(std::memory_order_relaxed) != State::awake) one.rouse();
}

void Background::rouse() noexcept {
  const State before = state_.exchange(State::awake);
  if (before == State::asleep) waits_.wake();
  if (before != State::ended) return;
  const int failed = guarded("stream MPI", [this] {
    const std::lock_guard lock(thread_mutex_);
    if (!thread_) thread_.emplace(HostStream::Options{.name = "stream MPI, unattended"});
    thread_->run([this] { run(); });
  });
  if (failed != 0) state_.store(State::ended);  // it goes on when it is waited for
}

void Background::end() noexcept {
  Background& one = only();
  one.ending_.store(true);
  one.waits_.wake();
  const std::lock_guard lock(one.thread_mutex_);
  one.thread_.reset();
  one.waits_.clear();
  one.ending_.store(false);
  one.state_.store(State::ended);
}

/// An item of the thread's stream: returns when nothing was left for a while.
void Background::run() {
  do {
    auto pause = kUntilMostAreAwaited;
    for (int looks = 0; looks < kLooks; ++looks) {
      std::this_thread::sleep_for(pause);
      if (ending_.load()) return;
      pause = std::min(2 * pause, kLongestPause);
      if (!go_on_with_all()) continue;
      sleep_while_left();
      pause = kUntilMostAreAwaited;
      looks = 0;
    }
    state_.store(State::ended);
    base::heavy_fence();
  } while (go_on_with_all() && begins_again());
}

/// Until nothing is left, or `notice` is called.
void Background::sleep_while_left() {
  state_.store(State::asleep);
  base::heavy_fence();
  while (go_on_with_all() && state_.load() == State::asleep && !ending_.load()) waits_.sleep();
  state_.store(State::awake);
}

/// False: `notice` has been called, which enqueues the next item.
bool Background::begins_again() noexcept {
  State ended = State::ended;
  return state_.compare_exchange_strong(ended, State::awake);
}

/// True: something is left.
bool Background::go_on_with_all() {
  waits_.clear();
  bool left = false;
  std::unique_lock lock(mutex_);
  for (auto next = all_.begin(); next != all_.end();) {
    Pending* const one = current_ = *next;
    lock.unlock();
    left = one->go_on(waits_) || left;
    lock.lock();
    current_ = nullptr;
    returned_.notify_all();
    next = all_.upper_bound(one);
  }
  return left;
}

void Handover::await_take_back() noexcept {
  (void)wait_until(kForever, [this] { return take_back(); });
}

}  // namespace sluice::stream_mpi
