// SPDX-License-Identifier: Apache-2.0
// Waits for whichever of several receivers comes first, in the order of a stream.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.hpp"
#include "base/races.hpp"
#include "runtime/handles.hpp"
#include "runtime/kept.hpp"
#include "runtime/wait_any.hpp"

namespace sluice::detail {

/// A wait or a release that a stream was given, until it has ended.
class WaitAnyCore::Enqueued {
 public:
  explicit Enqueued(std::shared_ptr<WaitAnyCore> core) noexcept : core_(std::move(core)) { ++core_->enqueued_; }
  Enqueued(const Enqueued&) = delete;
  Enqueued& operator=(const Enqueued&) = delete;
  ~Enqueued() { end(); }
  void end() noexcept {
    if (std::exchange(ended_, true)) return;
    --core_->enqueued_;
    core_->ended_.wake();
  }

 private:
  const std::shared_ptr<WaitAnyCore> core_;
  bool ended_ = false;
};

/// A wait or a release that a stream runs now.
class WaitAnyCore::OnStream {
 public:
  /// @throws Error{Code::misuse} if another stream runs one; {Code::aborted} if the WaitAny was destroyed
  OnStream(WaitAnyCore& core, device::Lane lane) : core_(core) {
    if (core_.running_.exchange(true)) throw core_.error(Code::misuse, "two streams use one WaitAny at once");
    core_.on_ = lane.host;
    if (!core_.abandoned_ && !core_.given_up()) return;
    end();
    if (!core_.abandoned_) throw Error(core_.fate_->first()->error());
    throw core_.error(Code::aborted, "the WaitAny was destroyed before what a stream had of it had ended");
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;
  ~OnStream() { end(); }

 private:
  void end() noexcept {
    core_.on_ = nullptr;
    core_.running_ = false;
    core_.ended_.wake();
  }
  WaitAnyCore& core_;
};

void WaitAnyCore::check_user() const {
  if (enqueued_ == 0) return;
  if (kind_ == Stream::Kind::host && static_cast<const HostStream::Impl*>(stream_.load())->inside()) return;
  throw error(Code::misuse, "a stream uses this WaitAny: its waits and releases have not ended");
}

void WaitAnyCore::check_stream(Stream stream) {
  device::check_supported(stream, rank_);
  if (stream.kind() != kind_ || stream_ != stream.handle()) {
    check_user();
    if (device::of_gpu(stream) && enqueued_ > 0)
      throw error(Code::misuse, "a HostStream uses this WaitAny: its waits and releases have not ended");
  }
  if (device::of_gpu(stream)) check_gpu(stream);
}

template <class F>
void WaitAnyCore::give(Stream stream, F work) {
  const bool to_gpu = device::of_gpu(stream);
  stream_ = stream.handle();  // first: `check_user` looks at it
  kind_ = stream.kind();
  on_gpu_ = to_gpu;
  const auto enqueued = [this] {
    const base::races::NoOrder counting;
    return std::make_shared<Enqueued>(shared_from_this());
  };
  auto run = [enqueued = enqueued(), work = std::move(work)](device::Lane lane) { work(lane, *enqueued); };
  if (to_gpu) return give_to_gpu(stream, std::move(run));
  device::on_host(static_cast<HostStream::Impl*>(stream.handle()), std::move(run));
}

std::shared_ptr<AnyTicket> WaitAnyCore::wait(Stream stream, Takes takes, const void* from) {
  check_stream(stream);
  auto ticket = std::make_shared<AnyTicket>(weak_from_this());
  if (stream.kind() == Stream::Kind::program_order) {
    take_in_order(*ticket, takes, timeout(), from);
    ticket->done = true;
  } else {
    if (device::of_gpu(stream)) lend(*ticket, stream);
    give(stream, [this, ticket, takes, from](device::Lane lane, Enqueued& enqueued) {
      wait_on(lane, enqueued, *ticket, takes, from);
    });
  }
  return ticket;
}

void WaitAnyCore::take_in_order(AnyTicket& ticket, Takes takes, Timeout limit, const void* from) {
  if (takes == Takes::some) {
    ticket.arrivals = wait_some(limit, from);
  } else if (auto arrival = wait_for(limit, from)) {
    ticket.arrivals.push_back(*std::move(arrival));
  }
  if (ticket.arrivals.empty() && left() > 0) throw_why_none(limit);
}

void WaitAnyCore::take_on(device::Lane lane, AnyTicket& ticket, Takes takes, const void* from) {
  const OnStream here(*this, lane);
  if (const auto* const stop = lane.host->stopped_by()) throw error(Code::aborted, stop->why());
  try {
    take_in_order(ticket, takes, std::min(lane.host->timeout(), timeout()), from);
  } catch (const Error&) {
    if (failed_ == nullptr) throw;
    ticket.failed = failed_->end().failure();
    failed_->end().report_failure(lane);
  }
}

void WaitAnyCore::wait_on(device::Lane lane, Enqueued& enqueued, AnyTicket& ticket, Takes takes, const void* from) {
  try {
    take_on(lane, ticket, takes, from);
    ticket.write_for_kernels();
  } catch (...) {
    ticket.thrown = std::current_exception();
  }
  const std::exception_ptr thrown = ticket.thrown;
  enqueued.end();  // first: once the ticket is done, the host may use this
  ticket.done.store(true, std::memory_order_release);
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

void WaitAnyCore::throw_why_none(Timeout limit) const {
  const std::string of = "any of " + std::to_string(left()) + " receivers";
  if (abandoned_) throw error(Code::aborted, "the WaitAny was destroyed while a stream waited for " + of);
  if (given_up()) throw Error(fate_->first()->error());
  if (interrupted()) throw error(Code::aborted, "the stream was destroyed while it waited for " + of);
  if (all_closed()) throw error(Code::misuse, "all receivers were closed here while a stream waited for " + of);
  throw_timeout(limit);
}

/// Else a program that closes them all, which is a mistake, would wait for ever.
bool WaitAnyCore::all_closed() const noexcept {
  return std::ranges::all_of(all_, [](const auto& one) { return one == nullptr || one->end().closed_here(); });
}

void WaitAnyCore::release(Stream stream, const std::shared_ptr<AnyTicket>& ticket, const void* from) {
  check_stream(stream);
  if (ticket->of.lock().get() != this) throw error(Code::misuse, "release: the ticket is of another WaitAny");
  const bool in_order = stream.kind() == Stream::Kind::program_order;
  if (in_order && !ticket->done) throw error(Code::misuse, "release: the wait of the ticket has not ended");
  if (ticket->released.exchange(true)) throw error(Code::misuse, "release: the ticket was released");
  if (in_order) return release_on({}, *ticket, from);
  try {
    give(stream, [this, ticket, from](device::Lane lane, Enqueued& enqueued) {
      std::exception_ptr thrown;
      try {
        const OnStream here(*this, lane);
        release_on(lane, *ticket, from);
      } catch (...) {
        thrown = std::current_exception();
      }
      enqueued.end();
      if (thrown != nullptr) std::rethrow_exception(thrown);
    });
  } catch (...) {
    ticket->released = false;
    throw;
  }
}

void WaitAnyCore::release_on(device::Lane lane, const AnyTicket& ticket, const void* from) {
  if (!ticket.done) throw error(Code::misuse, "release: the wait of the ticket has not ended, on another stream");
  std::exception_ptr first;
  for (const WaitAny::Arrival& arrival : ticket.arrivals) {
    Awaited* const one = all_[arrival.index].get();
    if (one == nullptr || arrival.count) continue;  // it needs none
    one->end().fail_if_stopped(lane);
    try {
      if (lane.host != nullptr && one->end().failed()) {
        one->end().report_failure(lane, false);
      } else {
        one->release(lane, from);
      }
    } catch (const Error&) {  // the others are released all the same
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

void WaitAnyCore::abandon() noexcept {
  if (!origin.here()) return;
  abandoned_ = true;
  {
    const std::lock_guard lock(mutex_);
    if (asleep_at_ != nullptr) asleep_at_->wake();
  }
  const Timeout most = services_ == nullptr ? kForever : services_->limits.connect;
  base::Limit limit(std::uncaught_exceptions() > 0 ? runtime::time_to_leave(most) : most);
  if (!end_waits(limit)) {
    kept_ = shared_from_this();
    return base::log(base::LogLevel::warn, "a wait of a WaitAny has not ended: it and its receivers are kept");
  }
  all_.clear();
  left_ = 0;
}

/// False: not within the limit.
bool WaitAnyCore::end_waits(base::Limit& limit) noexcept {
  const bool ended = await_end(limit, [this] { return !running_; });
  return (threads_ == nullptr || leave_gpus(limit)) && ended;
}

}  // namespace sluice::detail

namespace sluice {

WaitAny::~WaitAny() {
  if (core_ != nullptr) core_->abandon();
}

WaitAny& WaitAny::operator=(WaitAny&& other) noexcept {
  WaitAny(std::move(other)).core_.swap(core_);
  return *this;
}

WaitAny::Ticket WaitAny::wait(Stream stream) {
  const base::races::Called here;
  if (core_ == nullptr) core_ = base::make_here<detail::WaitAnyCore>();
  return Ticket(detail::usable_here(core_).wait(stream, detail::WaitAnyCore::Takes::one, __builtin_return_address(0)));
}

WaitAny::Ticket WaitAny::wait_some(Stream stream) {
  const base::races::Called here;
  if (core_ == nullptr) core_ = base::make_here<detail::WaitAnyCore>();
  return Ticket(detail::usable_here(core_).wait(stream, detail::WaitAnyCore::Takes::some, __builtin_return_address(0)));
}

void WaitAny::release(Stream stream, const Ticket& ticket) {
  const base::races::Called here;
  if (core_ == nullptr || ticket.state_ == nullptr) detail::throw_empty();
  detail::usable_here(core_).release(stream, ticket.state_, __builtin_return_address(0));
}

bool WaitAny::Ticket::done() const noexcept {
  return state_ != nullptr && state_->done.load(std::memory_order_acquire);
}

std::vector<WaitAny::Arrival> WaitAny::Ticket::arrivals() const&& { return arrivals(); }

const std::vector<WaitAny::Arrival>& WaitAny::Ticket::arrivals() const& {
  if (state_ == nullptr) detail::throw_empty();
  if (!done()) throw Error(Code::misuse, -1, -1, 0, 0, "the wait of the ticket has not ended");
  if (state_->failed != nullptr) state_->failed->raise();
  if (state_->thrown != nullptr) std::rethrow_exception(state_->thrown);
  return state_->arrivals;
}

std::optional<WaitAny::Arrival> WaitAny::Ticket::arrival() const {
  const auto& all = arrivals();
  return all.empty() ? std::nullopt : std::optional(all.front());
}

}  // namespace sluice
