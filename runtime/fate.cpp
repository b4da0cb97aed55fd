// SPDX-License-Identifier: Apache-2.0
#include "runtime/fate.hpp"

#include <algorithm>

#include "runtime/channel.hpp"

namespace sluice::runtime {

void SharedFate::join(const std::shared_ptr<SharedFate>& fate, ChannelEnd& end) {
  end.share(fate);
  fate->rejoin(end);
  if (end.failure() != nullptr) fate->catch_up(end);
}

void SharedFate::rejoin(ChannelEnd& end) noexcept {
  const auto locked = lock();
  std::erase(ends_, &end);  // it may not have left
  ends_.push_back(&end);
  if (first_ != nullptr && end.begin_to_fail(first_)) end.release_failed(what_, true);
}

void SharedFate::leave(const ChannelEnd& end) noexcept {
  const auto locked = lock();
  std::erase(ends_, &end);
}

void SharedFate::fail(Code code, const std::string& what) noexcept {
  std::shared_ptr<ChannelEnd> any;  // another thread may drop its handle
  {
    const auto locked = lock();
    for (std::size_t i = 0; i < ends_.size() && any == nullptr; ++i) any = ends_[i]->weak_from_this().lock();
  }
  if (any != nullptr) any->fail(code, what);
}

bool SharedFate::any_used() const noexcept {
  return std::ranges::any_of(ends_, [](const ChannelEnd* end) { return end->epoch() > 0; });
}

void SharedFate::fail_others(const ChannelEnd& end, const device::SharedFailure& failure) noexcept {
  first_ = failure;
  failed_.store(true, std::memory_order_release);
  for (ChannelEnd* const other : ends_)
    if (other != &end) (void)other->begin_to_fail(failure);
}

void SharedFate::release_others(const ChannelEnd& end, const std::string& what) noexcept {
  what_ = what;
  for (ChannelEnd* const other : ends_)
    if (other != &end) other->release_failed(what, true);
}

void SharedFate::catch_up(const ChannelEnd& end) noexcept {
  const auto locked = lock();
  if (first_ != nullptr) return;
  const device::SharedFailure failure = end.failure();
  fail_others(end, failure);
  release_others(end, failure->error().what());
}

device::SharedFailure SharedFate::first() const noexcept {
  const std::lock_guard locked(mutex_);
  return first_;
}

void SharedFate::check() const {
  if (const device::SharedFailure failure = first()) failure->raise();
}

void SharedFate::report(device::Lane lane) const noexcept {
  const device::SharedFailure failure = first();
  if (failure != nullptr && lane.host != nullptr) lane.host->met(failure, true);
}

}  // namespace sluice::runtime
