// SPDX-License-Identifier: Apache-2.0
// How host streams stop, how hosts wait for them, and how they wait for each other.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "base/limit.hpp"
#include "base/log.hpp"
#include "device/host_event.hpp"

namespace sluice {

using device::SharedFailure;

namespace {

std::string text_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& reason) {
    return reason.what();
  } catch (...) {
    return "something was thrown that is no std::exception";
  }
}

SharedFailure failure_of(Code code, const std::string& what) {
  return std::make_shared<device::Failure>(Error(code, -1, -1, 0, 0, what));
}

}  // namespace

// ---- Stopping, in the one thread that runs the stream.

/// The exception is told when `synchronize` throws it, and then so is the failure of every channel behind.
void HostStream::Impl::stop(std::exception_ptr thrown) noexcept {
  if (stop_.failure != nullptr) return;  // the library's own work, on a stopped stream
  const std::string why = name_ + ": " + text_of(thrown);
  stop_ = {failure_of(Code::aborted, why), why};
  const std::lock_guard lock(mutex_);
  thrown_ = std::move(thrown);
}

/// The end of the stream cuts waits off: what stands behind one is for bytes that never came.
void HostStream::Impl::met(const SharedFailure& failure) noexcept {
  failed_.store(true, std::memory_order_release);
  if ((stops_ || ending()) && stop_.failure == nullptr)
    stop_ = {failure, "its host stream had stopped: " + std::string(failure->error().what())};
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(met_, failure) == met_.end()) met_.push_back(failure);
  any_met_.store(true, std::memory_order_release);
}

/// In the order of the stream: work behind this runs again.
SharedFailure HostStream::Impl::go_on() noexcept {
  failed_.store(false, std::memory_order_relaxed);
  return std::exchange(stop_, {}).failure;
}

/// Called by the destructor, once nothing runs any more.
void HostStream::Impl::tell_of_stop() noexcept {
  if (thrown_ == nullptr || stop_.failure == nullptr || stop_.failure->cause()->told) return;
  stop_.failure->tell();
  base::report_untold("no call has thrown this: " + stop_.why);
}

// ---- Synchronizing.

void HostStream::Impl::synchronize(Timeout timeout) {
  const base::trace::Span slice("synchronize");
  if (inside()) throw Error(Code::misuse, -1, -1, 0, 0, name_ + ": synchronize inside the stream waits for itself");
  SharedFailure stopped_by;
  // The work that this thread would run may wait for peers, for longer than the limit. In this thread it would also be
  // ordered behind all that the thread has done, which is no order that the stream gives.
  const bool may_run = timeout == kForever && !base::races::kOn;
  if (!may_run || !catch_up(tail_.load(std::memory_order_relaxed), stopped_by)) stopped_by = wait_for_marker(timeout);
  if (stopped_by != nullptr) {
    stopped_by->tell();
    (void)stopped_by->take();
    if (const auto thrown = take_thrown()) std::rethrow_exception(thrown);
    stopped_by->raise();
  }
  if (any_met_.load(std::memory_order_acquire)) {
    if (const SharedFailure oldest = next_met()) oldest->raise();
  }
}

std::exception_ptr HostStream::Impl::take_thrown() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(thrown_, nullptr);
}

/// The oldest failure that no call has thrown once; null: there is none.
SharedFailure HostStream::Impl::next_met() {
  const std::lock_guard lock(mutex_);
  while (!met_.empty()) {
    const SharedFailure oldest = std::move(met_.front());
    met_.erase(met_.begin());
    if (oldest->take()) return oldest;
  }
  any_met_.store(false, std::memory_order_relaxed);
  return nullptr;
}

bool HostStream::Impl::catch_up(std::uint64_t target, SharedFailure& stopped_by) {
  if (!take_over()) return false;
  Impl* const outer = std::exchange(current, this);
  const bool done = run_own(target);
  if (done) stopped_by = go_on();
  current = outer;
  hand_back();
  // Work that was enqueued meanwhile is for the stream's thread, which sleeps if it has found the stream taken.
  if (has_work()) call(State::asleep);
  return done;
}

bool HostStream::Impl::run_own(std::uint64_t target) noexcept {
  bool any = false;
  while (head_.load(std::memory_order_relaxed) < target || late_before_.load(std::memory_order_relaxed) <= target) {
    if (!run_next(Whose::own)) return false;
    any = true;
  }
  if (any) caught_up_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

/// Where a host waits for the stream.
struct HostStream::Impl::Marker {
  base::Word raised;
  SharedFailure stopped_by;
  std::atomic<bool> in_time{true};  // the host still waits, and takes what stopped the stream
};

SharedFailure HostStream::Impl::wait_for_marker(Timeout timeout) {
  if (timeout != kForever) return wait_for_marker(std::make_shared<Marker>(), timeout);
  Marker here;
  return wait_for_marker(std::shared_ptr<Marker>(std::shared_ptr<Marker>(), &here), timeout);
}

SharedFailure HostStream::Impl::wait_for_marker(const std::shared_ptr<Marker>& marker, Timeout timeout) {
  Work item([this, marker] {
    if (marker->in_time.exchange(false)) marker->stopped_by = go_on();
    base::raise(marker->raised, 1, passing_);  // last: the marker may be gone
  });
  append(item, Whose::own);
  call(State::dozing);
  const auto passed = [&] { return base::reached(marker->raised, 1); };
  if (timeout > base::kYielding && device::yield_until(passed)) return marker->stopped_by;
  base::Limit limit(timeout);
  while (!base::wait_until(passing_, passed, limit.next())) {
    if (!limit.over()) continue;
    if (!marker->in_time.exchange(false)) break;  // it passes at this moment
    throw Error(Code::timeout, -1, -1, 0, 0, name_ + ": not synchronized, items are left in its queue");
  }
  base::wait_until(passing_, passed);
  return marker->stopped_by;
}

// ---- Events.

void HostStream::Impl::raise_at(std::shared_ptr<HostEvent::Impl> event) {
  enqueue([this, event = std::move(event)] {
    event->stop = stop_;
    base::raise(event->raised, 1, event->parking);
  });
}

void HostStream::Impl::wait_for(std::shared_ptr<HostEvent::Impl> event) {
  enqueue([this, event = std::move(event)] {
    if (stop_.failure != nullptr) return;
    const auto ready = [&] { return event->reached() || ending(); };
    parked_at(&event->parking);
    base::Limit limit(timeout_);
    while (!base::wait_until(event->parking, ready, limit.next()) && !limit.over()) {
    }
    parked_at(nullptr);
    if (!event->reached()) {
      const char* const why =
          ending() ? "it was destroyed while it waited for an event" : "waited too long for an event";
      throw Error(ending() ? Code::aborted : Code::timeout, -1, -1, 0, 0, name_ + ": " + why);
    }
    if (event->stop.failure != nullptr) {
      failed_.store(true, std::memory_order_release);
      stop_ = event->stop;
    }
  });
}

}  // namespace sluice
