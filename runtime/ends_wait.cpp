// SPDX-License-Identifier: Apache-2.0
#include "runtime/ends_wait.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/words.hpp"
#include "runtime/handles.hpp"
#include "runtime/receiver.hpp"
#include "runtime/sender.hpp"

namespace sluice::detail {
namespace {

constexpr base::Clock::duration kSoon = std::chrono::milliseconds(2);             // nothing wakes for what is no end
constexpr base::Clock::duration kUntilConnected = std::chrono::milliseconds(10);  // nor for a peer that opens its end
constexpr base::Clock::duration kLongest = std::chrono::seconds(30);              // nor for rails beyond the first
/// Ends of one peer share a place, which each of its puts and credits wakes.
constexpr auto kBetweenWakes = std::chrono::milliseconds(1);

bool may_go_on(const runtime::ChannelEnd& end) noexcept {
  if (end.failed()) return true;
  if (end.sends()) return static_cast<const SenderCore&>(end).may_put();
  const auto& receiver = static_cast<const ReceiverCore&>(end);
  return receiver.has_landed(receiver.epoch() + 1) || receiver.all_taken();
}

void add_places(const runtime::ChannelEnd& end, std::vector<base::Parking*>& places) {
  if (end.sends()) return static_cast<const SenderCore&>(end).add_places(places);
  static_cast<const ReceiverCore&>(end).add_places(places);
}

}  // namespace

struct EndsWait::Impl {
  bool ready() const noexcept {
    return woken.load(std::memory_order_acquire) ||
           std::ranges::any_of(ends, [](const auto& end) { return may_go_on(*end); });
  }
  base::Clock::duration longest() const noexcept {
    if (soon) return kSoon;
    const bool connected = std::ranges::all_of(ends, [](const auto& end) { return end->connected(); });
    return connected ? kLongest : kUntilConnected;
  }
  void find_places();
  void sleep_at(base::Parking* place) noexcept {
    const std::lock_guard lock(mutex);
    asleep_at = place;
  }
  void park(base::Clock::time_point deadline) noexcept;

  std::vector<std::shared_ptr<runtime::ChannelEnd>> ends;
  std::vector<base::Parking*> places;  // keeps its memory
  bool soon = false;
  base::Parking without_ends;
  std::atomic<bool> woken{false};
  std::mutex mutex;
  base::Parking* asleep_at = nullptr;
};

void EndsWait::Impl::find_places() {
  places.clear();
  for (const auto& end : ends) add_places(*end, places);
  std::ranges::sort(places);
  const auto same = std::ranges::unique(places);
  places.erase(same.begin(), same.end());
  if (places.empty()) places.push_back(&without_ends);
}

/// Several places have one in common, or the thread looks every 0.1 ms.
void EndsWait::Impl::park(base::Clock::time_point deadline) noexcept {
  constexpr auto is_ready = [](void* impl) { return static_cast<const Impl*>(impl)->ready(); };
  if (places.size() == 1) return base::park(*places.front(), is_ready, this, deadline);
  base::park(places, is_ready, this, deadline);
}

EndsWait::EndsWait() : impl_(std::make_unique<Impl>()) {}
EndsWait::~EndsWait() = default;

void EndsWait::add(const ChannelHandle& end) noexcept {
  try {
    impl_->ends.push_back(ChannelAccess::end(end));
  } catch (const std::exception&) {
    look_soon();
  }
}

void EndsWait::look_soon() noexcept { impl_->soon = true; }

void EndsWait::clear() noexcept {
  impl_->ends.clear();
  impl_->soon = false;
}

void EndsWait::sleep() {
  Impl& all = *impl_;
  all.find_places();
  const auto deadline = base::Clock::now() + all.longest();
  all.sleep_at(all.places.front());
  while (!all.ready()) {
    all.park(deadline);
    if (all.ready() || base::Clock::now() >= deadline) break;
    std::this_thread::sleep_for(kBetweenWakes);
  }
  all.sleep_at(nullptr);
  all.woken.exchange(false);  // what precedes a `wake` is seen behind this
}

void EndsWait::wake() noexcept {
  impl_->woken.store(true, std::memory_order_release);
  const std::lock_guard lock(impl_->mutex);
  if (impl_->asleep_at != nullptr) impl_->asleep_at->wake();
}

}  // namespace sluice::detail
