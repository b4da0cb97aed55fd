// SPDX-License-Identifier: Apache-2.0
#include "tests/emucxi/domain.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <chrono>

#include "tests/emucxi/counter.hpp"
#include "tests/emucxi/endpoint.hpp"
#include "tests/emucxi/queue.hpp"
#include "tests/emucxi/region.hpp"

namespace emucxi {

using Clock = std::chrono::steady_clock;

Domain::Domain(layer::Fabric& owner, const fi_info& info, const Settings& set, fid_domain* wrapped, void* context)
    : layer::Domain(owner, wrapped, {{FI_CLASS_DOMAIN, context, nullptr}, nullptr, nullptr}), settings(set),
      provider_keys((info.domain_attr->mr_mode & FI_MR_PROV_KEY) != 0),
      traffic_class(info.domain_attr->tclass ? info.domain_attr->tclass : std::uint32_t{FI_TC_BEST_EFFORT}) {
  set_domain_ops(*this);
  nic_ = std::thread([this] { play(); });
}

Domain::~Domain() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    stirred_.notify_all();
  }
  nic_.join();
}

// --- work that waits -------------------------------------------------------------------------------------------------

int Domain::queue(const fi_deferred_work& asked) {
  Work work;
  if (const int bad = check_work(*this, asked, work)) return bad;
  Transfer* const transfer = work.transfer.get();
  if (transfer && transfer->holds_request && !transfer->endpoint->take_request()) return -FI_EAGAIN;
  const int refused = admit(work);
  if (refused && transfer && transfer->holds_request) transfer->endpoint->give_back_request();
  return refused;
}

int Domain::admit(Work& work) {
  const std::size_t entries = work.entries + (work.and_write_back ? 1 : 0);
  if (entries_in_use_ + entries > settings.usable_entries()) {
    if (settings.refuse_beyond_entries) return -FI_ENOSPC;
    lost_.push_back(std::move(work));
    return 0;
  }
  Counter& trigger = *work.trigger;
  if (work.and_write_back) {
    // One above: cxi writes the trigger counter back when the operation's completion has counted there too.
    Work writeback;
    writeback.action = Work::Action::write_back;
    writeback.trigger = writeback.counter = &trigger;
    writeback.threshold = work.threshold + 1;
    arm(std::move(writeback));
  }
  arm(std::move(work));
  fire(trigger);
  return 0;
}

void Domain::arm(Work work) {
  entries_in_use_ += work.entries;
  auto& armed = work.trigger->armed;
  armed.emplace(work.threshold, std::move(work));
}

void Domain::fire(Counter& counter) {
  auto& armed = counter.armed;
  while (!armed.empty() && armed.begin()->first <= counter.success() + counter.failure()) {
    auto first = armed.extract(armed.begin());
    entries_in_use_ -= first.mapped().entries;
    ready_.push_back(std::move(first.mapped()));
  }
}

void Domain::after_call() {
  while (!ready_.empty()) {
    stir();
    if (!run(ready_.front())) return;  // the network is full: the thread tries again
    ready_.pop_front();
  }
}

bool Domain::run(Work& work) {
  switch (work.action) {
    case Work::Action::add: work.counter->add(work.value); return true;
    case Work::Action::set: work.counter->set(work.value); return true;
    case Work::Action::write_back: work.counter->write_back(); return true;
    case Work::Action::transfer: break;
  }
  if (fails_now()) {
    ++begun_;
    finish(std::move(work.transfer), FI_EIO);
    return true;
  }
  const ssize_t bad = work.transfer->endpoint->send(work.transfer);
  if (bad == -FI_EAGAIN) return false;
  ++begun_;
  if (bad) finish(std::move(work.transfer), static_cast<int>(-bad));
  return true;
}

bool Domain::fails_now() const { return settings.fail_every && (begun_ + 1) % settings.fail_every == 0; }

void Domain::begin(std::unique_ptr<Transfer> transfer) {
  Work work;
  work.transfer = std::move(transfer);
  ready_.push_back(std::move(work));
}

void Domain::finish(std::unique_ptr<Transfer> transfer, int error) {
  if (Counter* const counter = transfer->completion) error ? counter->add_failures(1) : counter->add(1);
  const bool seen = transfer->holds_request || error || transfer->flags & FI_COMPLETION;
  Queue& queue = *transfer->endpoint->transmit_queue();
  if (seen) queue.finished(std::move(transfer), error);
}

void Domain::flush() {
  {
    const std::lock_guard lock(mutex_);
    drop([](const Work&) { return true; });
  }
  std::this_thread::sleep_for(settings.flush);
}

// --- cancelled work --------------------------------------------------------------------------------------------------

template <class Dropped>
void Domain::drop(Dropped dropped) {
  const auto gone = [&](const Work& work) {
    if (!dropped(work)) return false;
    if (work.transfer && work.transfer->holds_request) work.transfer->endpoint->give_back_request();
    return true;
  };
  for (Counter* const counter : counters) {
    std::erase_if(counter->armed, [&](const auto& armed) {
      if (!gone(armed.second)) return false;
      entries_in_use_ -= armed.second.entries;
      return true;
    });
  }
  std::erase_if(lost_, gone);
  std::erase_if(ready_, gone);
}

void Domain::forget(Counter& counter) {
  drop([&](const Work& work) { return work.concerns(counter); });
  for (Endpoint* const endpoint : endpoints) endpoint->forget(counter);
  counters.remove(&counter);
}

void Domain::forget(Endpoint& endpoint) {
  drop([&](const Work& work) { return work.transfer && work.transfer->endpoint == &endpoint; });
  endpoints.remove(&endpoint);
}

// --- the thread that plays the NIC -----------------------------------------------------------------------------------

void Domain::stir() {
  stir_ = true;
  stirred_.notify_one();
}

bool Domain::must_poll() const {
  return !ready_.empty() ||
         std::any_of(counters.begin(), counters.end(), [](const Counter* one) { return one->has_page(); }) ||
         std::any_of(regions.begin(), regions.end(), [](const Region* one) { return one->counts(); }) ||
         std::any_of(endpoints.begin(), endpoints.end(), [](const Endpoint* one) { return one->waits_for_network(); });
}

bool Domain::turn() {
  bool found = !ready_.empty();
  for (Counter* const counter : counters) found |= counter->has_page() && counter->take_stores();
  for (Region* const region : regions) found |= region->counts() && region->poll();
  for (Endpoint* const endpoint : endpoints) found |= endpoint->poll();
  after_call();
  return found || std::exchange(stir_, false);
}

/// Yields for a while after the last work, then sleeps, longer and longer.
void Domain::play() {
  constexpr auto kAwake = std::chrono::milliseconds(1);
  constexpr auto kLongestNap = std::chrono::microseconds(500);
  std::unique_lock lock(mutex_);
  auto last = Clock::now();
  while (!ending_) {
    const auto now = Clock::now();
    if (turn()) last = now;
    if (now - last < kAwake) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else if (must_poll()) {
      const auto nap = std::min<Clock::duration>((now - last) / 16, kLongestNap);
      stirred_.wait_for(lock, nap, [&] { return stir_ || ending_; });
    } else {
      stirred_.wait(lock, [&] { return stir_ || ending_; });
    }
  }
}

}  // namespace emucxi
