// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "base/log.hpp"
#include "base/races.hpp"
#include "base/threads.hpp"
#include "runtime/cores.hpp"
#include "runtime/line.hpp"

namespace sluice::runtime {
namespace {

using detail::ChannelAccess;
using detail::core_of;

template <class Handle, class Core>
Handle open(AgentLine::Side side, const std::shared_ptr<const Services>& services, const Opening& of, ChannelKey key) {
  constexpr bool sends = std::is_same_v<Handle, Sender>;
  // Apart: a rank may be the target and the owner.
  if (sends != (side == AgentLine::Side::target)) key.scope = "@replies:" + key.scope;
  key.role = sends ? Role::sender : Role::receiver;
  return open_line<Handle, Core>(services,
                                 line_opening(services, of, std::move(key), AgentLine::kDepth, AgentLine::kSlot));
}

/// Bytes follow the message: those of a put, or numbers.
bool has_bytes(backends::Request::Kind kind) noexcept {
  return kind == backends::Request::Kind::put || kind == backends::Request::Kind::accumulate;
}

/// Bytes of the window that the request changes.
std::size_t bytes_of(const AgentLine::Message& message) noexcept {
  return has_bytes(message.kind) ? message.bytes : sizeof message.operand;
}

}  // namespace

AgentLine::AgentLine(Side side, const std::shared_ptr<const Services>& services, const Opening& of,
                     const ChannelKey& key)
    : out(open<Sender, detail::SenderCore>(side, services, of, key)),
      in(open<Receiver, ReceiverCore>(side, services, of, key)) {}

// ---- the target

AgentClient::AgentClient(ChannelEnd& target, const Opening& of, std::string scope)
    : target_(target), line_(AgentLine::Side::target, target.own_services(), of,
                             {of.key.world_peer, std::move(scope), of.key.tag, Role::sender}) {}

ReceiverCore& AgentClient::replies() const noexcept { return core_of(line_.in); }

bool AgentClient::all_replied() const noexcept { return replies().failed() || replies().has_landed(sent_.load()); }

/// False: the target has failed meanwhile.
bool AgentClient::await(device::Lane lane, const device::Wait& wait) {
  device::wait(lane, wait, target_, target_.services().engine.helper());
  return !target_.failed();
}

void AgentClient::send(device::Lane lane, std::uint64_t epoch, const backends::Request& request) {
  const bool both =
      await(lane, replies().wait_for_peer(epoch)) && await(lane, ChannelAccess::end(line_.out)->wait_for_peer(epoch));
  if (!both) return;
  AgentLine::Message message{request.kind,    request.op, request.number, request.offset, request.operand,
                             request.compare, 0,          request.counter};
  if (!has_bytes(request.kind)) return send(lane, epoch, message, {}, request.local.data());
  constexpr std::size_t kAtOnce = AgentLine::kMost / sizeof(std::uint64_t) * sizeof(std::uint64_t);
  std::size_t at = 0;
  do {
    const auto part = request.local.subspan(at, std::min(kAtOnce, request.local.size() - at));
    message.offset = request.offset + at;
    message.bytes = part.size();
    at += part.size();
    message.counter = at == request.local.size() ? request.counter : backends::Request::kNone;
    send(lane, epoch, message, part, nullptr);
  } while (at < request.local.size() && !target_.failed());
}

void AgentClient::send(device::Lane lane, std::uint64_t epoch, const AgentLine::Message& message,
                       std::span<const std::byte> bytes, std::byte* old) {
  if (olds_.size() == AgentLine::kDepth) {
    if (!await(lane, replies().wait_for_arrival(taken_ + 1, epoch))) return;
    take_one();
  }
  std::byte* const slot = line_.out.acquire({}).data();
  std::memcpy(slot, &message, sizeof message);
  if (!bytes.empty()) std::memcpy(slot + sizeof message, bytes.data(), bytes.size());
  ++sent_;  // first: closing waits for its reply
  line_.out.put({}, 0, sizeof message + bytes.size());
  olds_.push_back(old);
}

void AgentClient::take_one() {
  const Slice reply = line_.in.wait({});  // it is here, or the channel has failed
  if (std::byte* const old = olds_.front()) std::memcpy(old, reply.data(), sizeof(std::uint64_t));
  olds_.pop_front();
  line_.in.release({});
  ++taken_;
}

void AgentClient::take_replies() {
  while (!olds_.empty()) take_one();
}

bool AgentClient::nothing_returns() const noexcept {
  return std::ranges::all_of(olds_, [](const std::byte* old) { return old == nullptr; });
}

void AgentClient::collect(device::Lane lane, std::uint64_t epoch) {
  if (!olds_.empty() && await(lane, replies().wait_for_arrival(sent_, epoch))) take_replies();
}

// ---- the owner

Agent::Agent(std::shared_ptr<const Services> services, backends::Counters counters)
    : services_(std::move(services)), counters_(counters),
      call_(services_->registry.take_word(services_->rank, Standing::together)) {}

Agent::~Agent() {
  stop();
  services_->registry.give_back_word(services_->rank, call_);
}

void Agent::join(const ChannelKey& key, const Opening& of, std::span<std::byte> memory) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    joined_.push_back({key, of, memory});
    if (!thread_.joinable()) {
      const base::SignalsBlocked blocked;
      thread_ = std::thread([this] { serve(); });
    }
  }
  call();
}

void Agent::call() noexcept {
  called_.store(true);
  call_.parking->wake();
}

void Agent::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  call();
  if (thread_.joinable()) thread_.join();
}

void Agent::serve() {
  for (bool stops = false; !stops;) {
    called_.store(false);
    stops = admit_joined();  // first: requests that have arrived before are served
    std::erase_if(lines_, [this](Served& one) { return !serve(one); });
    if (!stops) await_work();
  }
  lines_.clear();
}

/// Returns whether the agent is to stop.
bool Agent::admit_joined() {
  std::vector<Joined> joined;
  bool stops = false;
  {
    const std::lock_guard lock(mutex_);
    joined.swap(joined_);
    stops = stopping_;
  }
  for (const Joined& one : joined) {
    try {
      lines_.push_back({AgentLine(AgentLine::Side::owner, services_, one.of, one.key), one.memory});
    } catch (const std::exception& reason) {  // the target waits for its connection, and times out
      base::log(base::LogLevel::warn, std::string("no line for the atomics of a target: ") + reason.what());
    }
  }
  return stops;
}

bool Agent::is_called() noexcept {
  return called_.load() ||
         std::ranges::any_of(lines_, [](const Served& one) { return core_of(one.line.in).may_take(); });
}

/// Sleeps where the words of all peers wake it (WaitAnyCore does the same).
void Agent::await_work() {
  const auto ready = [this] { return is_called(); };
  device::Helper* const helper = services_->engine.helper();
  if (helper != nullptr && device::help_until(*helper, ready, base::Clock::time_point::max())) return;
  std::vector<base::Parking*> places{call_.parking};
  for (const Served& one : lines_) core_of(one.line.in).add_places(places);
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  (void)base::wait_until(places, ready);
}

bool Agent::serve(Served& one) {
  AgentLine& line = one.line;
  try {
    // No more than each of the others has in turn.
    for (int i = 0; i < AgentLine::kDepth && core_of(line.in).may_take(); ++i) {
      if (core_of(line.in).all_taken()) return false;
      if (!line.out.credited()) return true;  // its credit is on the way
      const auto message = line.in.test();
      if (!message) return true;
      carry_out(one, *message);
    }
    return true;
  } catch (const Error&) {  // the target's end of the line fails too
    return false;
  }
}

void Agent::carry_out(Served& one, const Slice& slot) {
  AgentLine& line = one.line;
  AgentLine::Message message;
  std::memcpy(&message, slot.data(), sizeof message);
  std::array<std::byte, sizeof(std::uint64_t)> old{};
  const std::size_t bytes = bytes_of(message);
  const std::size_t all = one.memory.size();
  if (message.offset <= all && bytes <= all - message.offset && bytes <= AgentLine::kMost) {
    std::span<std::byte> local(old);
    if (has_bytes(message.kind)) local = {slot.data() + sizeof message, bytes};
    std::byte* const there = one.memory.data() + message.offset;
    const base::races::Unseen ordered_elsewhere;  // by the reply, and what the target then sends to the owner
    if (message.kind != backends::Request::Kind::put) {
      backends::change(
          there, {message.kind, message.offset, local, message.operand, message.compare, message.op, message.number});
    } else if (bytes != 0) {
      std::memcpy(there, local.data(), bytes);
    }
    if (message.counter < counters_.size())
      base::add_one(counters_[message.counter].word, counters_[message.counter].parking);
  }
  line.in.release({});  // first: it travels with the reply
  std::memcpy(line.out.acquire({}).data(), old.data(), old.size());
  line.out.put({}, 0, old.size());
}

}  // namespace sluice::runtime
