// SPDX-License-Identifier: Apache-2.0
#include "runtime/wait_any.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "base/text.hpp"
#include "runtime/counter.hpp"
#include "runtime/engine.hpp"
#include "runtime/handles.hpp"
#include "runtime/window.hpp"

namespace sluice::detail {

namespace {

class AwaitedReceiver final : public Awaited {
 public:
  explicit AwaitedReceiver(std::shared_ptr<ReceiverCore> receiver) : receiver_(std::move(receiver)) {}
  ~AwaitedReceiver() override {
    if (lent_) receiver_->add_lenders(-1);
  }
  runtime::ChannelEnd& end() const noexcept override { return *receiver_; }
  bool ready() noexcept override { return receiver_->may_take(); }
  void add_places(std::vector<base::Parking*>& places) const override { receiver_->add_places(places); }
  std::optional<WaitAny::Arrival> take(std::size_t index, const void* from) override {
    const runtime::ChannelEnd::Use use(*receiver_, runtime::Verb::wait_any, from);
    if (receiver_->all_taken()) return WaitAny::Arrival{index, {}, {}};
    auto slot = receiver_->wait_for(Timeout::zero());
    if (!slot) return std::nullopt;
    return WaitAny::Arrival{index, std::move(slot), {}};
  }
  void release(device::Lane lane, const void* from) override {
    const runtime::ChannelEnd::Use use(*receiver_, runtime::Verb::release, from);
    receiver_->release_in(lane);
  }
  void lend_to_kernels(device::Driver& driver, int gpu) override {
    if (receiver_->gpus() != nullptr)
      receiver_->misuse(receiver_->epoch(), "the receiver is used by its own verbs on streams of a GPU");
    receiver_->lend_slots(driver, gpu);
    if (!std::exchange(lent_, true)) receiver_->add_lenders(1);
  }

 private:
  const std::shared_ptr<ReceiverCore> receiver_;
  bool lent_ = false;
};

class AwaitedCounter final : public Awaited {
 public:
  AwaitedCounter(std::shared_ptr<runtime::WindowCore> window, runtime::CounterEnd& counter, std::uint64_t value)
      : window_(std::move(window)), counter_(counter), value_(value), next_(counter.word_after(value)) {}
  runtime::ChannelEnd& end() const noexcept override { return counter_; }
  bool ready() noexcept override { return counter_.failed() || counter_.raised() >= next_; }
  void add_places(std::vector<base::Parking*>& places) const override { places.push_back(&counter_.parking()); }
  std::optional<WaitAny::Arrival> take(std::size_t index, const void*) override {
    const std::uint64_t count = counter_.count();
    next_ += value_;
    return WaitAny::Arrival{index, {}, count};
  }
  void release(device::Lane, const void*) override {}
  void lend_to_kernels(device::Driver&, int) override {}

 private:
  const std::shared_ptr<runtime::WindowCore> window_;  // owns the counter
  runtime::CounterEnd& counter_;
  const std::uint64_t value_;
  std::uint64_t next_;  // the word at which it is reported
};

}  // namespace

std::size_t WaitAnyCore::add(std::unique_ptr<Awaited> one) {
  runtime::ChannelEnd& end = one->end();
  end.check_free();
  if (left_ > 0 && &one_left().services() != &end.services())
    end.misuse(end.epoch(), "the channel belongs to another context than those that are waited for");
  rank_ = end.opening.rank;
  services_ = end.own_services();
  all_.push_back(std::move(one));
  ++left_;
  return all_.size() - 1;
}

Timeout WaitAnyCore::timeout() const noexcept {
  return left_ == 0 ? Timeout::zero() : one_left().services().limits.wait;
}

const runtime::ChannelEnd& WaitAnyCore::one_left() const noexcept {
  return (*std::ranges::find_if(all_, [](const auto& one) { return one != nullptr; }))->end();
}

void WaitAnyCore::leave_out(std::size_t index) noexcept {
  all_[index].reset();
  --left_;
}

bool WaitAnyCore::find() noexcept {
  for (std::size_t looked = 0; looked < all_.size(); ++looked, next_ = (next_ + 1) % all_.size()) {
    Awaited* const one = all_[next_].get();
    if (one != nullptr && one->ready()) return true;
  }
  return false;
}

/// @throws Error{Code::misuse} if a plan or kernels drive one: the host may not take what comes
void WaitAnyCore::check_all() const {
  for (const auto& one : all_) {
    if (one != nullptr) one->end().check_free();
  }
}

/// Places that hold several of the words are there once.
void WaitAnyCore::find_places() {
  places_.clear();
  for (const auto& one : all_) {
    if (one != nullptr) one->add_places(places_);
  }
  std::sort(places_.begin(), places_.end());
  places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
}

std::string WaitAnyCore::states() const {
  std::string text;
  for (const auto& one : all_) {
    if (one != nullptr) text += "; " + one->end().direction() + ": " + one->end().state();
  }
  return text;
}

void WaitAnyCore::throw_timeout(Timeout stated) const {
  throw Error(Code::timeout, one_left().opening.rank, -1, 0, 0,
              "none of " + std::to_string(left_) + " receivers has a message" +
                  (stated > Timeout::zero() ? " after " + base::duration_text(stated) : std::string()) + states());
}

/// As long as this lives, destroying the stream or the WaitAny wakes the wait that the stream runs.
class WaitAnyCore::Asleep {
 public:
  explicit Asleep(WaitAnyCore& core) : core_(core) { sleeps_at(core_.places_.front()); }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;
  ~Asleep() { sleeps_at(nullptr); }

 private:
  void sleeps_at(base::Parking* place) noexcept {
    if (core_.on_ == nullptr) return;
    core_.on_->parked_at(place);
    for (const auto& one : core_.all_) {  // an exception that leaves work behind this wait fails them
      if (one != nullptr) one->end().sleeps(place == nullptr ? nullptr : core_.on_);
    }
    const std::lock_guard lock(core_.mutex_);
    core_.asleep_at_ = place;
  }
  WaitAnyCore& core_;
};

/// Waits as one end does (ChannelEnd::await_in_host), but for all. False: not in time.
bool WaitAnyCore::await_one(base::Limit& limit) {
  const auto ready = [this] { return find() || interrupted(); };
  if (ready()) return true;
  device::Helper* const helper = one_left().services().engine.helper();
  if (limit.left() == base::Clock::duration::zero()) {
    if (helper != nullptr) helper->look();
    return helper != nullptr && ready();
  }
  const base::trace::Span slice(on_ == nullptr ? "host waits for any" : "wait for any");
  if (helper != nullptr && device::help_until(*helper, ready, limit.next())) return true;
  return sleep_until(limit, helper);
}

bool WaitAnyCore::sleep_until(base::Limit& limit, device::Helper* helper) {
  const auto ready = [this] { return find() || interrupted(); };
  const runtime::ChannelEnd& first = one_left();
  constexpr std::size_t kNoted = 64;  // of a table that a person reads
  std::vector<std::pair<const runtime::ChannelEnd*, runtime::ChannelEnd::Warning>> warnings;
  for (const auto& one : all_) {
    if (one == nullptr || warnings.size() == kNoted) continue;
    auto& [end, warning] =
        warnings.emplace_back(&one->end(), one->end().new_warning(one->end().epoch() + 1, "waits any"));
    if (on_ != nullptr) warning.note = base::WaitNote(base::Clock::now(), on_->name().c_str());
  }
  constexpr auto kOfGpu = std::chrono::milliseconds(100);  // what gives the stream up wakes no thread
  const auto next_look = [&] {
    const auto next = first.next_look(warnings.front().second);
    return on_gpu_ ? std::min(next, base::Clock::now() + kOfGpu) : next;
  };
  const auto sleep = [&] {
    find_places();  // the engine may have made one more
    const Asleep here(*this);
    return base::wait_until(places_, ready, std::min(limit.next(), next_look()));
  };
  while (!sleep()) {
    for (auto& [end, warning] : warnings) end->look_at(warning);
    if (on_ != nullptr && all_closed()) return true;
    if (!limit.over()) continue;
    if (helper != nullptr) helper->look();  // it may have arrived while the process stood still
    return ready();
  }
  return true;
}

std::optional<WaitAny::Arrival> WaitAnyCore::take(const void* from) {
  const std::size_t index = std::exchange(next_, (next_ + 1) % all_.size());
  Awaited& one = *all_[index];
  const auto leave_failed = [&] {
    failed_ = std::move(all_[index]);
    leave_out(index);
  };
  if (on_ != nullptr && one.end().failed()) {  // `take` would count as a call of the program that throws the failure
    leave_failed();
    throw Error(one.end().failure()->error());
  }
  try {
    auto arrival = one.take(index, from);
    if (arrival && arrival->closed()) leave_out(index);
    return arrival;
  } catch (const Error&) {
    if (one.end().failed()) leave_failed();
    throw;
  }
}

std::optional<WaitAny::Arrival> WaitAnyCore::wait_for(Timeout timeout, const void* from) {
  held_of_left_ = false;
  if (held_ != nullptr) std::rethrow_exception(std::exchange(held_, nullptr));
  failed_.reset();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all_[i] != nullptr && all_[i]->end().closed_here()) leave_out(i);
  }
  check_all();
  if (find()) {  // without the clock
    if (auto arrival = take(from)) return arrival;
  }
  base::Limit limit(timeout);
  while (left_ > 0 && await_one(limit)) {
    if (!find()) {
      // Another thread has released a range that was there, or the wait has to end.
      if (limit.over() || interrupted() || (on_ != nullptr && all_closed())) break;
      continue;
    }
    if (auto arrival = take(from)) return arrival;
  }
  return std::nullopt;
}

std::vector<WaitAny::Arrival> WaitAnyCore::wait_some(Timeout timeout, const void* from) {
  std::vector<WaitAny::Arrival> some;
  auto first = wait_for(timeout, from);
  if (!first) return some;
  some.push_back(*std::move(first));
  for (std::size_t others = all_.size() - 1; others > 0; --others) {
    if (all_[next_] == nullptr || !all_[next_]->ready()) {
      next_ = (next_ + 1) % all_.size();
      continue;
    }
    const std::size_t index = next_;
    try {
      held_of_left_ = true;  // if it leaves now, `left` counts it on
      if (auto more = take(from)) some.push_back(*std::move(more));
      held_of_left_ = false;
    } catch (const Error&) {
      held_ = std::current_exception();
      held_of_left_ = all_[index] == nullptr;
      break;
    }
  }
  return some;
}

WaitAnyCore& WaitAnyAccess::core(std::shared_ptr<WaitAnyCore>& core) {
  if (core == nullptr) core = base::make_here<WaitAnyCore>();
  usable_here(core).check_user();
  return *core;
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
  return detail::WaitAnyAccess::core(core_).add(
      std::make_unique<detail::AwaitedReceiver>(std::shared_ptr<detail::ReceiverCore>(end, &core)));
}

std::size_t WaitAny::add(Window& window, std::uint32_t counter, std::uint64_t value) {
  const auto& owner = detail::ChannelAccess::core(window);
  runtime::CounterEnd& end = usable_here(owner).counter(counter);
  if (value == 0) throw end.error(Code::bad_argument, end.epoch() + 1, "a count of 0 is always reached");
  return detail::WaitAnyAccess::core(core_).add(std::make_unique<detail::AwaitedCounter>(owner, end, value));
}

std::optional<WaitAny::Arrival> WaitAny::wait_for(Timeout timeout) {
  if (core_ == nullptr) return std::nullopt;
  return detail::WaitAnyAccess::core(core_).wait_for(timeout, __builtin_return_address(0));
}

std::optional<WaitAny::Arrival> WaitAny::wait(std::optional<Timeout> timeout) {
  if (core_ == nullptr) return std::nullopt;
  const Timeout stated = timeout.value_or(detail::WaitAnyAccess::core(core_).timeout());
  auto arrival = core_->wait_for(stated, __builtin_return_address(0));
  if (!arrival && core_->left() > 0) core_->throw_timeout(stated);
  return arrival;
}

std::vector<WaitAny::Arrival> WaitAny::wait_some_for(Timeout timeout) {
  if (core_ == nullptr) return {};
  return detail::WaitAnyAccess::core(core_).wait_some(timeout, __builtin_return_address(0));
}

std::vector<WaitAny::Arrival> WaitAny::wait_some(std::optional<Timeout> timeout) {
  if (core_ == nullptr) return {};
  const Timeout stated = timeout.value_or(detail::WaitAnyAccess::core(core_).timeout());
  auto some = core_->wait_some(stated, __builtin_return_address(0));
  if (some.empty() && core_->left() > 0) core_->throw_timeout(stated);
  return some;
}

std::size_t WaitAny::left() const noexcept { return core_ == nullptr ? 0 : core_->left(); }

}  // namespace sluice
