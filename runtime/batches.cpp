// SPDX-License-Identifier: Apache-2.0
// The verbs of several epochs. They are apart from those of one, whose code they would make slower: the compiler puts
// what has one caller where it is called (test: Instructions.of_put_wait_and_release_grow_no_more).
#include <sluice/channel.hpp>

#include <algorithm>

#include "runtime/handles.hpp"
#include "runtime/receiver.hpp"
#include "runtime/sender.hpp"

namespace sluice::detail {

// ---- the sender

Batch SenderCore::acquire(Stream stream, std::size_t count) {
  check_count(count);
  check_next(count);
  const std::uint64_t first = epoch() + 1;
  const std::uint64_t last = epoch() + count;
  if (last > depth() && count > 0) acquire_on(stream, first, last);
  return batch(first, count, stream.kind(), false);
}

void SenderCore::await_sent(Stream stream) {
  check();
  const auto await_all = [&] { acquire_on(stream, epoch() + 1, epoch() + depth()); };
  if (bound_to(stream)) return await_all();
  const Use use(*this, stream, runtime::Verb::acquire, __builtin_return_address(0));
  await_all();
}

void SenderCore::put_all(Stream stream, std::size_t count) {
  check_count(count);
  if (count == 0) return check();
  const std::uint64_t last = begin(count);
  const std::uint64_t first = last - count + 1;
  announce_all(first, last);
  issue(
      stream, [this, first, last](device::Lane lane) { fire_all(lane, first, last); }, [&] { put_refused(stream); });
  if (stream.kind() != Stream::Kind::host) check();
}

/// Puts that have their credit do not wait for those behind them: the receiver may wait for them first, and may close
/// before it releases what the others wait for.
void SenderCore::fire_all(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  fail_if_stopped(lane);
  for (std::uint64_t epoch = first; epoch <= last;) {
    const std::uint64_t end = await_credits(lane, epoch, last);
    report_failure(lane);
    if (!base::trace::on()) [[likely]] {
      enqueue_all(lane, epoch, end);
    } else {
      device::trace_slice(lane, "put", traced, end, (end - epoch + 1) * slot_bytes, base::trace::Arrow::begins,
                          [this, lane, epoch, end] { enqueue_all(lane, epoch, end); });
    }
    epoch = end + 1;
  }
}

std::uint64_t SenderCore::await_credits(device::Lane lane, std::uint64_t epoch, std::uint64_t last) {
  await_connected(lane, epoch);
  const std::uint64_t depth = peer_depth_.load(std::memory_order_relaxed);
  const bool all = last <= credit_seen_ + depth || look_for_credit(last - depth);
  if (!all && epoch > credit_seen_ + depth) await_credit_slowly(lane, epoch);
  return failed() ? last : std::clamp(credit_seen_ + depth, epoch, last);
}

// ---- the receiver

Batch ReceiverCore::wait(Stream stream, std::size_t count) {
  check_count(count);
  const std::uint64_t last = count == 0 ? epoch() : begin(count);
  const std::uint64_t first = last - count + 1;
  if (count > 0) {
    issue(
        stream, [this, first, last](device::Lane lane) { land_all(lane, first, last); },
        [&] { waits_refused(stream, count); });
  }
  if (stream.kind() != Stream::Kind::host || count == 0) check();
  return batch(first, count, stream.kind(), checked());
}

void ReceiverCore::land_all(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  fail_if_stopped(lane);
  await_connected(lane, first);
  if (!base::trace::on()) [[likely]]
    return await_and_take_all(lane, first, last);
  device::trace_slice(lane, "wait", traced, last, (last - first + 1) * slot_bytes, base::trace::Arrow::ends,
                      [this, lane, first, last] { await_and_take_all(lane, first, last); });
}

/// Epochs that have landed are counted before those behind them: the peer may close before it puts these.
void ReceiverCore::await_and_take_all(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t epoch = first; epoch <= last;) {
    if (lane.gpu != nullptr) {
      await_and_take(lane, epoch++);
      continue;
    }
    if (epoch > signal_seen_ && !look_for_signal(epoch)) await_signal(lane, epoch);
    const std::uint64_t end = failed() ? last : std::clamp(signal_seen_, epoch, last);
    for (std::uint64_t next = epoch; lands_around() && next <= end; ++next) take(next);
    if constexpr (base::races::kOn) {
      for (std::uint64_t next = epoch; next <= end; ++next) tell_of_arrival(next);
    }
    report_failure(lane);
    count_waits(end - epoch + 1);  // the last of them may end this end
    epoch = end + 1;
  }
}

std::uint64_t ReceiverCore::begin_releases(std::uint64_t count) {
  const std::uint64_t released = releases_.by_host();
  const std::uint64_t left = epoch() - released;
  if (count > left) {
    misuse(epoch() + 1, "release of " + std::to_string(count) + " epochs: of the " + std::to_string(epoch()) +
                            " waited for, " + std::to_string(left) + " are not released");
  }
  releases_.enqueue(released + count);
  return released + count;
}

void ReceiverCore::release(Stream stream, std::size_t count) {
  check();
  if (count == 0) return;
  const std::uint64_t last = begin_releases(count);
  const std::uint64_t first = last - count + 1;
  announce_all(first, last);
  issue(
      stream, [this, first, last](device::Lane lane) { give_back_all(lane, first, last); },
      [&] { release_refused(stream); });
}

void ReceiverCore::give_back_all(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  fail_if_stopped(lane);
  await_connected(lane, first);
  report_failure(lane, false);
  if (!base::trace::on()) [[likely]]
    return enqueue_all(lane, first, last);
  device::trace_slice(lane, "release", traced, last, 0, base::trace::Arrow::none,
                      [this, lane, first, last] { enqueue_all(lane, first, last); });
}

Batch ReceiverCore::wait_some(Timeout timeout) {
  check_free();
  check();
  const std::uint64_t first = epoch() + 1;
  std::uint64_t last = last_here();
  if (last < first) {
    if (!await_by_host(first, timeout)) return batch(first, 0, Stream::Kind::host, false);
    last = last_here();
  } else if (warning_.epoch == first) {
    warning_.note.end();
  }
  if (last >= base::kPoison) check();
  last = std::min(last, epoch() + depth());
  take_by_host(first, last);
  return batch(first, last - first + 1, Stream::Kind::host, checked());
}

std::uint64_t ReceiverCore::last_here() {
  const std::uint64_t landed = connected() ? last_landed() : 0;
  if (visible_ == nullptr) return landed;
  if (landed < base::kPoison && landed > requested_.load()) request_copies(landed);
  return visible_.load()->word.value.load(std::memory_order_acquire);
}

}  // namespace sluice::detail

namespace sluice {

using detail::not_empty;
using detail::usable_here;
using runtime::Verb;
using Use = runtime::ChannelEnd::Use;

namespace {

detail::SenderCore& sender_of(const std::shared_ptr<runtime::ChannelEnd>& end) {
  return static_cast<detail::SenderCore&>(not_empty(end));
}
detail::ReceiverCore& receiver_of(const std::shared_ptr<runtime::ChannelEnd>& end) {
  return static_cast<detail::ReceiverCore&>(not_empty(end));
}

}  // namespace

Batch Sender::acquire(Stream stream, std::size_t count) {
  const base::races::Called here;
  auto& core = sender_of(end_);
  if (core.bound_to(stream)) [[likely]]
    return core.acquire(stream, count);
  const Use use(core, stream, Verb::acquire, __builtin_return_address(0));
  core.order_acquire(stream, count);
  return core.acquire(stream, count);
}
void Sender::put(Stream stream, std::size_t count) {
  const base::races::Called here;
  auto& core = sender_of(end_);
  if (core.bound_to(stream)) [[likely]]
    return core.put_all(stream, count);
  const Use use(core, stream, Verb::put, __builtin_return_address(0));
  core.put_all(stream, count);
}
Batch Receiver::wait(Stream stream, std::size_t count) {
  const base::races::Called here;
  auto& core = receiver_of(end_);
  if (core.bound_to(stream)) [[likely]]
    return core.wait(stream, count);
  const Use use(core, stream, Verb::wait, __builtin_return_address(0));
  return core.wait(stream, count);
}
void Receiver::release(Stream stream, std::size_t count) {
  const base::races::Called here;
  auto& core = receiver_of(end_);
  if (core.bound_to(stream)) [[likely]]
    return core.release(stream, count);
  const Use use(core, stream, Verb::release, __builtin_return_address(0));
  core.release(stream, count);
}
Batch Receiver::test_some() {
  const base::races::Called here;
  const Use use(usable_here(end_), Verb::test_some, __builtin_return_address(0));
  return receiver_of(end_).wait_some(Timeout::zero());
}
Batch Receiver::wait_some(Timeout timeout) {
  const base::races::Called here;
  const Use use(usable_here(end_), Verb::wait_some, __builtin_return_address(0));
  return receiver_of(end_).wait_some(timeout);
}

}  // namespace sluice
