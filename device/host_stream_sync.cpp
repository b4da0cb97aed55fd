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

/// When `synchronize` throws the exception, the failures of all channels behind count as told.
void HostStream::Impl::stop(std::exception_ptr thrown) noexcept {
  if (stop_.failure != nullptr) return;  // the library's own work, on a stopped stream
  try {
    stop_.failure = failure_of(Code::aborted, name_ + ": " + text_of(thrown));
  } catch (const std::bad_alloc&) {
    stop_.failure = without_text_;
  }
  stop_.thrown = std::move(thrown);
}

/// The end of the stream cuts waits off: what stands behind one is for bytes that never came.
void HostStream::Impl::met(const SharedFailure& failure, bool waits) noexcept {
  if (waits) {
    failed_.store(true, std::memory_order_release);
    if ((stops_ || ending() || failure->cuts_off()) && stop_.failure == nullptr) stop_ = {failure, nullptr};
  }
  const std::lock_guard lock(mutex_);
  try {
    if (std::ranges::find(met_, failure) == met_.end()) met_.push_back(failure);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): `check` throws it, or the rank's end reports it
  }
  any_met_.store(true, std::memory_order_release);
}

/// In the order of the stream: work behind this runs again.
void HostStream::Impl::go_on(Stop& stopped_by) noexcept {
  failed_.store(false, std::memory_order_relaxed);
  if (stop_.failure != nullptr) stopped_by = std::exchange(stop_, {});
}

/// Called by the destructor, once nothing runs any more.
void HostStream::Impl::tell_of_stop() noexcept {
  if (stop_.thrown == nullptr || stop_.failure->cause()->told) return;
  stop_.failure->tell();
  base::report_untold("no call has thrown this: " + std::string(stop_.failure->error().what()));
}

// ---- Synchronizing.

void HostStream::Impl::synchronize(Timeout timeout) {
  const base::trace::Span slice("synchronize");
  if (inside()) throw Error(Code::misuse, -1, -1, 0, 0, name_ + ": synchronize inside the stream waits for itself");
  const std::uint64_t target = tail_.load(std::memory_order_relaxed);
  const bool idle = head_.load(std::memory_order_acquire) >= target;
  Stop stop;
  // The work that this thread would run may wait for peers, for longer than the limit. In this thread it would also be
  // ordered behind all that the thread has done, which is no order that the stream gives.
  const bool may_run = (timeout == kForever || idle) && !base::races::kOn;
  // Then the stream's thread gets a moment to say that nothing is left.
  if (base::races::kOn && idle) timeout = std::max(timeout, Timeout(std::chrono::seconds(1)));
  if (!may_run || !catch_up(target, stop)) stop = wait_for_marker(timeout);
  if (stop.failure != nullptr) {
    (void)stop.failure->take();
    stop.failure->tell();
    if (stop.thrown != nullptr) std::rethrow_exception(stop.thrown);
    stop.failure->raise();
  }
  if (any_met_.load(std::memory_order_acquire)) {
    if (const SharedFailure oldest = next_met()) oldest->raise();
  }
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

bool HostStream::Impl::catch_up(std::uint64_t target, Stop& stop) {
  if (!take_over()) return false;
  const RunsHere here(*this);
  const bool done = run_own(target);
  if (done) go_on(stop);
  return done;
}

bool HostStream::Impl::run_own(std::uint64_t target) noexcept {
  bool any = false;
  while (head_.load(std::memory_order_relaxed) < target || late_before_.load(std::memory_order_relaxed) <= target) {
    if (!run_next(Whose::own)) return false;
    any = true;
  }
  if (any) count_caught_up();
  return true;
}

/// Where a host waits for the stream.
struct HostStream::Impl::Marker {
  base::Word raised;
  Stop stop;
  std::atomic<bool> in_time{true};  // the host still waits, and takes what stopped the stream
};

HostStream::Work HostStream::Impl::work_of(const std::shared_ptr<Marker>& marker) {
  return Work([this, marker] {
    if (marker->in_time.exchange(false)) go_on(marker->stop);
    base::raise(marker->raised, 1, passing_);  // last: the marker may be gone
  });
}

/// False: not within the limit.
bool HostStream::Impl::pass(const std::shared_ptr<Marker>& marker, base::Limit& limit) {
  const auto passed = [&] { return base::reached(marker->raised, 1); };
  while (!base::wait_until(passing_, passed, limit.next())) {
    if (limit.over()) return passed();
  }
  return true;
}

HostStream::Impl::Stop HostStream::Impl::wait_for_marker(Timeout timeout) {
  if (timeout == kForever) {
    Marker here;
    const std::shared_ptr<Marker> marker(std::shared_ptr<Marker>(), &here);
    Work item = work_of(marker);
    append(item, Whose::own);
    call(State::dozing);
    const auto passed = [&] { return base::reached(here.raised, 1); };
    if (!device::yield_until(passed)) base::wait_until(passing_, passed);
    return std::move(here.stop);
  }
  const Error late(Code::timeout, -1, -1, 0, 0, name_ + ": not synchronized, items are left in its queue");
  base::Limit limit(timeout);
  // The queue has one marker at most that nobody waits for, however often a host gives up.
  std::unique_lock lock(mutex_);
  const auto before = late_marker_;
  lock.unlock();
  if (before != nullptr && !pass(before, limit)) throw Error(late);
  const auto marker = std::make_shared<Marker>();
  Work item = work_of(marker);
  while (!append_if_free(item, Whose::own)) {
    if (limit.over()) throw Error(late);
    const auto soon = base::Clock::now() + std::chrono::milliseconds(1);  // the stream wakes for batches only
    base::wait_until(
        room_, [this] { return tail_.load() - head_.load() <= mask_; }, std::min(limit.next(), soon));
  }
  call(State::dozing);
  const bool in_time = pass(marker, limit);
  lock.lock();
  late_marker_ = in_time ? nullptr : marker;
  lock.unlock();
  if (!in_time && marker->in_time.exchange(false)) throw Error(late);
  base::wait_until(passing_, [&] { return base::reached(marker->raised, 1); });  // it passes at this moment
  return std::move(marker->stop);
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
    await_other(event->parking, [&] { return event->reached(); });
    if (event->stop.failure != nullptr) stop_as(event->stop);
  });
}

void HostStream::Impl::raise_at(std::shared_ptr<Turns> turns, std::uint64_t turn) {
  enqueue([this, turns = std::move(turns), turn] {
    if (stop_.failure != nullptr) {
      const std::lock_guard lock(turns->mutex);
      if (turns->stop.failure == nullptr) turns->stop = stop_;
    }
    base::raise(turns->raised, turn, turns->parking);
  });
}

void HostStream::Impl::wait_for(std::shared_ptr<Turns> turns, std::uint64_t turn) {
  enqueue([this, turns = std::move(turns), turn] {
    if (stop_.failure != nullptr) return;
    await_other(turns->parking, [&] { return turns->reached(turn); });
    const std::lock_guard lock(turns->mutex);
    if (turns->stop.failure != nullptr) stop_as(turns->stop);
  });
}

template <class Reached>
void HostStream::Impl::await_other(base::Parking& parking, Reached reached) {
  const auto ready = [&] { return reached() || ending(); };
  parked_at(&parking);
  base::Limit limit(timeout_);
  while (!base::wait_until(parking, ready, limit.next()) && !limit.over()) {
  }
  parked_at(nullptr);
  if (reached()) return;
  const char* const why = ending() ? "it was destroyed while it waited for an event" : "waited too long for an event";
  throw Error(ending() ? Code::aborted : Code::timeout, -1, -1, 0, 0, name_ + ": " + why);
}

void HostStream::Impl::stop_as(const Stop& other) noexcept {
  failed_.store(true, std::memory_order_release);
  stop_ = {other.failure, nullptr};
}

}  // namespace sluice
