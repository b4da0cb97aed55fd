// SPDX-License-Identifier: Apache-2.0
// The rounds of a plan: start, wait and reset, and the order in which they must be called.
#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "device/copy.hpp"
#include "runtime/cores.hpp"
#include "runtime/error_text.hpp"
#include "unr/core.hpp"

namespace sluice::unr {
namespace {

bool changes_nothing(Code code) noexcept {
  return code == Code::misuse || code == Code::unsupported || code == Code::bad_argument;
}

constexpr auto kPause = std::chrono::microseconds(50);  // between two looks of a host that polls

/// True also for a put that will be refused: `start` reports it once the others are sent.
bool may_put(Outgoing& out) {
  try {
    return out.end.credited();
  } catch (const Error&) {
    if (!detail::core_of(out.end).refuses_next()) throw;
    return true;
  }
}

/// False: not within the limit.
bool drain_within(base::Limit& limit, detail::SenderCore& sender) {
  try {
    sender.drain(limit);
    return true;
  } catch (const Error& reason) {
    if (reason.code() != Code::timeout || sender.failed()) throw;
    return false;
  }
}

/// In one operation of the host: a driver's copy between two places of its memory would hold up the calling thread.
void carry_out_by_host(device::GpuCall& call, const std::shared_ptr<const Packing>& packing) {
  if (packing->copies.empty()) return;
  using Held = std::shared_ptr<const Packing>;
  constexpr auto copy_all = [](void* argument) {
    const std::unique_ptr<Held> held(static_cast<Held*>(argument));
    for (const Packing::Copy& copy : (*held)->copies) base::copy_bytes(copy.to, copy.from, copy.bytes);
  };
  auto held = std::make_unique<Held>(packing);
  call.call(copy_all, held.get());
  static_cast<void>(held.release());
}

void carry_out_on(device::Lane lane, const std::shared_ptr<const Packing>& packing, std::uint64_t epoch) {
  if (lane.gpu != nullptr) {
    carry_out_by_host(*lane.gpu, packing);
  } else {
    for (const Packing::Copy& copy : packing->copies) device::copy(lane, copy.to, copy.from, copy.bytes);
  }
  for (const Packing::Copy& copy : packing->gpu_copies) device::copy(lane, copy.to, copy.from, copy.bytes);
  device::raise(lane, packing->done->word, epoch, packing->done->parking);
}

}  // namespace

void Core::check_committed() const {
  if (state_ == State::committed) return;
  const char* const what = state_ == State::recording ? "it is not committed"
                           : state_ == State::broken  ? "its commit has failed"
                                                      : "it is closed";
  throw error(Code::misuse, what);
}

template <class Call>
auto Core::named(const SignalCore& signal, Rank peer, Key key, Call call) const {
  try {
    return call();
  } catch (const Error& reason) {
    throw error(reason.code(), signal, detail::without_kind(reason), peer, key);
  }
}

const Message* Core::first_send_of(const SignalCore& signal) const {
  const auto found = std::ranges::find(sends_, &signal, &Message::signal);
  return found == sends_.end() ? nullptr : &*found;
}

/// A second send from memory whose first one has not been waited for would be an event too many.
void Core::check_sends_reset() const {
  for (const SignalCore& signal : signals_) {
    if (signal.sends == 0 || signal.epoch > started_) continue;
    const Message* const send = first_send_of(signal);
    throw error(Code::misuse, signal,
                "round " + std::to_string(started_ + 1) +
                    " was started before the signal was reset: it would get more than " +
                    std::to_string(signal.sends + signal.receives) + " events",
                send->peer, send->key);
  }
}

/// Called in program order before any put, so that nothing has changed. On a host stream each put has a limit of its
/// own, from when the stream reaches it: see `limit_credit`.
void Core::check_credits() {
  base::Limit limit(*reset_within_);
  for (Outgoing& out : outgoing_) {
    while (!may_put(out)) {
      if (limit.over())
        throw error(Code::misuse, early_put_text(out.end.peer(), out.signal, started_ + 1), out.end.peer(), out.first,
                    started_ + 1);
      std::this_thread::sleep_for(kPause);
    }
  }
}

/// A driver that refuses the copies fails the channel that they are for.
void Core::carry_out(runtime::ChannelEnd& end, Stream stream, const std::shared_ptr<const Packing>& packing,
                     std::uint64_t epoch) const {
  try {
    device::in_order(stream, [packing, epoch](device::Lane lane) { carry_out_on(lane, packing, epoch); });
  } catch (const device::GpuError& reason) {
    end.fail(Code::transport, reason.what());
    end.check();
  }
}

void Core::put(Outgoing& out, Stream stream) {
  if (out.packing != nullptr) {
    out.end.acquire(stream);
    carry_out(detail::core_of(out.end), stream, out.packing, out.end.epoch() + 1);
  }
  out.end.put(stream);
}

void Core::start(Stream stream) {
  check_committed();
  check_sends_reset();
  if (reset_within_ && stream.kind() == Stream::Kind::program_order) check_credits();
  std::optional<Error> failure;
  std::size_t sent = 0;
  for (Outgoing& out : outgoing_) {
    try {
      put(out, stream);
      ++sent;
    } catch (const Error& reason) {
      const detail::SenderCore& core = detail::core_of(out.end);
      const bool refused = core.refuses_next();  // by this peer alone: another stream would be refused by all
      if (sent == 0 && !refused && changes_nothing(reason.code())) throw;
      if (failure) continue;
      failure = !refused || core.failed()
                    ? reason
                    : error(Code::closed, "rank " + std::to_string(out.end.peer()) + " has closed its plan",
                            out.end.peer(), out.first, started_ + 1);
    }
  }
  ++started_;
  started_on_ = stream;
  if (failure) throw Error(*failure);
}

void Core::check_started(const SignalCore& signal, const char* what) const {
  if (signal.sends == 0 || started_ >= signal.epoch) return;
  const Message* const send = first_send_of(signal);
  throw error(Code::misuse, signal,
              std::string(what) + " its sends, which round " + std::to_string(signal.epoch) + " has not started",
              send->peer, send->key);
}

void Core::unpack(Incoming& in, Stream stream) const {
  if (!in.unpacked && in.packing != nullptr) {
    carry_out(detail::core_of(in.end), stream, in.packing, in.end.epoch());
    in.last_unpacked = in.end.epoch();
  }
  in.unpacked = true;
}

/// @throws Error if `start` could not make the put of this epoch
void Core::check_put(const SignalCore& signal, const Outgoing& out) const {
  if (out.end.epoch() >= signal.epoch) return;
  detail::core_of(out.end).check();
  throw closed_by(out.end.peer());
}

void Core::check_stream(const Incoming& in, Stream stream) {
  detail::ReceiverCore& core = detail::core_of(in.end);
  core.check_kind(stream);
  try {
    if (!core.bound_to(stream)) core.bind_slowly(stream);
  } catch (const Error&) {
    if (!core.failed()) throw;
  }
}

void Core::wait(SignalCore& signal, Stream stream) {
  check_committed();
  if (signal.triggered || signal.waited_on == stream) return;
  if (signal.waited_on)
    throw error(Code::misuse, signal,
                "a wait for it is enqueued on another stream: `wait_for` says when it is triggered", -1, 0);
  check_started(signal, "a wait for");
  for (const std::size_t route : signal.incoming) {
    Incoming& in = incoming_[route];
    named(signal, in.end.peer(), in.first, [&] {
      if (!in.landed)
        in.end.wait(stream);
      else
        check_stream(in, stream);
      in.landed = true;
      unpack(in, stream);
    });
  }
  for (const std::size_t route : signal.outgoing) {
    Outgoing& out = outgoing_[route];
    named(signal, out.end.peer(), out.first, [&] {
      check_put(signal, out);
      // On the stream of `start`, what was packed has left the program's memory already.
      if (out.packing == nullptr || stream != started_on_) detail::core_of(out.end).await_sent(stream);
    });
  }
  if (stream.kind() == Stream::Kind::program_order) {
    signal.triggered = true;
  } else {
    signal.waited_on = stream;
  }
}

/// Blocks the host until the message is in the program's memory. If the wait for it is enqueued, the stream must come
/// to it, since it may have to unpack.
bool Core::await_landed(Incoming& in, bool is_enqueued, base::Limit& limit) const {
  if (!in.landed && !wait_within(limit, in.end)) {
    if (in.end.closed()) throw closed_by(in.end.peer());
    return false;
  }
  in.landed = true;
  const auto& core = detail::core_of(in.end);
  const auto reached = [&](auto count) {
    while (count() < in.end.epoch()) {
      core.check();
      if (limit.over()) return false;
      std::this_thread::sleep_for(kPause);
    }
    core.check();  // a failure ends the stream's wait, too
    return true;
  };
  if (is_enqueued && !reached([&] { return core.counts().completed; })) return false;
  unpack(in, {});
  return !is_enqueued || in.packing == nullptr ||
         reached([&] { return in.packing->done->word.value.load(std::memory_order_acquire); });
}

bool Core::wait_for(SignalCore& signal, Timeout timeout) {
  check_committed();
  if (signal.triggered) return true;
  check_started(signal, "a wait for");
  base::Limit limit(timeout);
  for (const std::size_t route : signal.incoming) {
    Incoming& in = incoming_[route];
    if (on_gpu_ && in.packing != nullptr)
      throw error(Code::unsupported, signal, "only the GPU's stream can wait: it unpacks a message", in.end.peer(),
                  in.first);
    const bool landed =
        named(signal, in.end.peer(), in.first, [&] { return await_landed(in, signal.waited_on.has_value(), limit); });
    if (!landed) return false;
  }
  for (const std::size_t route : signal.outgoing) {
    Outgoing& out = outgoing_[route];
    const bool arrived = named(signal, out.end.peer(), out.first, [&] {
      check_put(signal, out);
      return drain_within(limit, detail::core_of(out.end));
    });
    if (!arrived) return false;
  }
  signal.triggered = true;
  return true;
}

/// A message that has arrived counts, whether or not it was waited for.
void Core::check_complete(SignalCore& signal) {
  check_started(signal, "a reset before");
  for (const std::size_t route : signal.incoming) {
    Incoming& in = incoming_[route];
    in.landed = in.landed || in.end.test().has_value();
    if (in.landed) continue;
    throw error(Code::misuse, signal,
                "a reset while events are missing: the message of rank " + std::to_string(in.end.peer()) + " with " +
                    name_of(in.first) + " has not arrived",
                in.end.peer(), in.first);
  }
}

void Core::reset(SignalCore& signal, Stream stream) {
  check_committed();
  if (!signal.triggered && !signal.waited_on) {
    check_complete(signal);
    wait(signal, stream);
  }
  for (const std::size_t route : signal.incoming) {
    const Incoming& in = incoming_[route];
    named(signal, in.end.peer(), in.first, [&] { check_stream(in, stream); });
  }
  std::optional<Error> failure;
  for (const std::size_t route : signal.incoming) {
    Incoming& in = incoming_[route];
    try {
      named(signal, in.end.peer(), in.first, [&] { in.end.release(stream); });
    } catch (const Error& reason) {  // the others are freed all the same
      if (!failure) failure = reason;
    }
    in.landed = in.unpacked = false;
  }
  signal.triggered = false;
  signal.waited_on.reset();
  ++signal.epoch;
  if (failure) throw Error(*failure);
}

}  // namespace sluice::unr
