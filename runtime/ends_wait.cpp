// SPDX-License-Identifier: Apache-2.0
#include "runtime/ends_wait.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

#include "base/words.hpp"
#include "runtime/handles.hpp"
#include "runtime/receiver.hpp"
#include "runtime/sender.hpp"

namespace sluice::detail {
namespace {

// What wakes no sleeper: what is no end, a peer that opens its end, and rails beyond the first.
constexpr base::Clock::duration kSoon = std::chrono::milliseconds(2);
constexpr base::Clock::duration kUntilConnected = std::chrono::milliseconds(10);
constexpr base::Clock::duration kLongest = std::chrono::seconds(30);

bool may_go_on(const runtime::ChannelEnd& end) noexcept {
  if (end.failed()) return true;
  if (end.sends()) return static_cast<const SenderCore&>(end).may_put();
  const auto& receiver = static_cast<const ReceiverCore&>(end);
  return receiver.has_landed(receiver.epoch() + 1);
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
  void sleep_at(base::Parking* place) noexcept {
    const std::lock_guard lock(mutex);
    asleep_at = place;
  }

  std::vector<std::shared_ptr<runtime::ChannelEnd>> ends;
  std::vector<base::Parking*> places;  // keeps its memory
  bool soon = false;
  base::Parking without_ends;
  std::atomic<bool> woken{false};
  std::mutex mutex;
  base::Parking* asleep_at = nullptr;
};

EndsWait::EndsWait() : impl_(std::make_unique<Impl>()) {}
EndsWait::~EndsWait() = default;

void EndsWait::add(const ChannelHandle& end) { impl_->ends.push_back(ChannelAccess::end(end)); }

void EndsWait::look_soon() noexcept { impl_->soon = true; }

void EndsWait::clear() noexcept {
  impl_->ends.clear();
  impl_->soon = false;
}

void EndsWait::sleep() {
  Impl& all = *impl_;
  all.places.clear();
  for (const auto& end : all.ends) add_places(*end, all.places);
  std::ranges::sort(all.places);
  const auto same = std::ranges::unique(all.places);
  all.places.erase(same.begin(), same.end());
  if (all.places.empty()) all.places.push_back(&all.without_ends);
  const auto deadline = base::Clock::now() + all.longest();
  all.sleep_at(all.places.front());
  constexpr auto ready = [](void* impl) { return static_cast<const Impl*>(impl)->ready(); };
  while (!all.ready() && base::Clock::now() < deadline) base::park(all.places, ready, &all, deadline);
  all.sleep_at(nullptr);
  all.woken.store(false, std::memory_order_relaxed);
}

void EndsWait::wake() noexcept {
  impl_->woken.store(true, std::memory_order_release);
  const std::lock_guard lock(impl_->mutex);
  if (impl_->asleep_at != nullptr) impl_->asleep_at->wake();
}

}  // namespace sluice::detail
