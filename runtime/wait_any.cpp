// SPDX-License-Identifier: Apache-2.0
#include "runtime/wait_any.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "runtime/engine.hpp"
#include "runtime/handles.hpp"

namespace sluice::detail {

std::size_t WaitAnyCore::add(std::shared_ptr<ReceiverCore> receiver) {
  receiver->check_free();
  if (left_ > 0 && &one_left().services() != &receiver->services())
    receiver->misuse(receiver->epoch(), "the channel belongs to another context than those that are waited for");
  receivers_.push_back(std::move(receiver));
  ++left_;
  return receivers_.size() - 1;
}

Timeout WaitAnyCore::timeout() const noexcept {
  return left_ == 0 ? Timeout::zero() : one_left().services().limits.wait;
}

const ReceiverCore& WaitAnyCore::one_left() const noexcept {
  return **std::ranges::find_if(receivers_, [](const auto& one) { return one != nullptr; });
}

void WaitAnyCore::leave_out(std::size_t index) noexcept {
  receivers_[index].reset();
  --left_;
}

ReceiverCore* WaitAnyCore::find() noexcept {
  for (std::size_t looked = 0; looked < receivers_.size(); ++looked, next_ = (next_ + 1) % receivers_.size()) {
    ReceiverCore* const one = receivers_[next_].get();
    if (one != nullptr && one->may_take()) return one;
  }
  return nullptr;
}

/// @throws Error{Code::misuse} if a plan or kernels drive one: the host may not take what comes
void WaitAnyCore::check_all() const {
  for (const auto& one : receivers_) {
    if (one != nullptr) one->check_free();
  }
}

/// Places that hold several of the words are there once.
void WaitAnyCore::find_places() {
  places_.clear();
  for (const auto& one : receivers_) {
    if (one != nullptr) one->add_places(places_);
  }
  std::sort(places_.begin(), places_.end());
  places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
}

std::string WaitAnyCore::states() const {
  std::string text;
  for (const auto& one : receivers_) {
    if (one != nullptr) text += "; " + one->direction() + ": " + one->state();
  }
  return text;
}

void WaitAnyCore::throw_timeout(Timeout stated) const {
  throw Error(Code::timeout, one_left().opening.rank, -1, 0, 0,
              "none of " + std::to_string(left_) + " receivers has a message" +
                  (stated > Timeout::zero() ? " after " + base::duration_text(stated) : std::string()) + states());
}

/// Waits as one end does (ChannelEnd::await_in_host), but for all. False: not in time.
bool WaitAnyCore::await_one(Timeout timeout) {
  const auto ready = [this] { return find() != nullptr; };
  if (ready()) return true;
  const ReceiverCore& first = one_left();
  device::Helper* const helper = first.services().engine.helper();
  if (timeout == Timeout::zero()) {
    if (helper != nullptr) helper->look();
    return helper != nullptr && ready();
  }
  const base::trace::Span slice("host waits for any");
  base::Limit limit(timeout);
  if (helper != nullptr && device::help_until(*helper, ready, limit.next())) return true;
  find_places();
  constexpr std::size_t kNoted = 64;  // of a table that a person reads
  std::vector<std::pair<const ReceiverCore*, runtime::ChannelEnd::Warning>> warnings;
  for (const auto& one : receivers_) {
    if (one != nullptr && warnings.size() < kNoted)
      warnings.emplace_back(one.get(), one->new_warning(one->epoch() + 1, "waits any"));
  }
  const auto next_look = [&] { return first.next_look(warnings.front().second); };
  while (!base::wait_until(places_, ready, std::min(limit.next(), next_look()))) {
    for (auto& [one, warning] : warnings) one->look_at(warning);
    find_places();  // the engine may have made one more
    if (!limit.over()) continue;
    if (helper != nullptr) helper->look();  // it may have arrived while the process stood still
    return ready();
  }
  return true;
}

std::optional<WaitAny::Arrival> WaitAnyCore::take(ReceiverCore& receiver, const void* from) {
  const std::size_t index = std::exchange(next_, (next_ + 1) % receivers_.size());
  try {
    bool ended = false;
    std::optional<Slice> slot;
    {
      const runtime::ChannelEnd::Use use(receiver, runtime::Verb::wait_any, from);
      ended = receiver.all_taken();
      if (!ended) slot = receiver.wait_for(Timeout::zero());
    }
    if (ended) leave_out(index);
    if (!ended && !slot) return std::nullopt;
    return WaitAny::Arrival{index, std::move(slot)};
  } catch (const Error&) {
    if (receiver.failed()) leave_out(index);
    throw;
  }
}

std::optional<WaitAny::Arrival> WaitAnyCore::wait_for(Timeout timeout, const void* from) {
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    if (receivers_[i] != nullptr && receivers_[i]->closed_here()) leave_out(i);
  }
  check_all();
  while (left_ > 0 && await_one(timeout)) {
    if (auto arrival = take(*receivers_[next_], from)) return arrival;
  }
  return std::nullopt;
}

}  // namespace sluice::detail

namespace sluice {

using detail::usable_here;

WaitAny::WaitAny(std::span<Receiver> receivers) {
  for (Receiver& receiver : receivers) add(receiver);
}

std::size_t WaitAny::add(Receiver& receiver) {
  const auto& end = detail::ChannelAccess::end(receiver);
  auto& core = static_cast<detail::ReceiverCore&>(usable_here(end));
  if (core_ == nullptr) core_ = base::make_here<detail::WaitAnyCore>();
  return usable_here(core_).add({end, &core});
}

std::optional<WaitAny::Arrival> WaitAny::wait_for(Timeout timeout) {
  if (core_ == nullptr) return std::nullopt;
  return usable_here(core_).wait_for(timeout, __builtin_return_address(0));
}

std::optional<WaitAny::Arrival> WaitAny::wait(std::optional<Timeout> timeout) {
  if (core_ == nullptr) return std::nullopt;
  const Timeout stated = timeout.value_or(usable_here(core_).timeout());
  auto arrival = core_->wait_for(stated, __builtin_return_address(0));
  if (!arrival && core_->left() > 0) core_->throw_timeout(stated);
  return arrival;
}

std::size_t WaitAny::left() const noexcept { return core_ == nullptr ? 0 : core_->left(); }

}  // namespace sluice
