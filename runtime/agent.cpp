// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent.hpp"

#include <algorithm>
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
  const bool replies = sends != (side == AgentLine::Side::target);
  if (replies) key.scope = "@replies:" + key.scope;  // apart: a rank may be the target and the owner
  key.role = sends ? Role::sender : Role::receiver;
  return open_line<Handle, Core>(services, line_opening(services, of, std::move(key), AgentLine::kDepth,
                                                        replies ? AgentLine::kMost : AgentLine::kSlot));
}

/// Bytes follow the message: those of a put, or numbers.
bool has_bytes(backends::Request::Kind kind) noexcept {
  return kind == backends::Request::Kind::put || kind == backends::Request::Kind::accumulate;
}

/// Bytes of the window that the request changes, or reads.
std::size_t bytes_of(const AgentLine::Message& message) noexcept {
  if (message.kind == backends::Request::Kind::none) return 0;
  const bool has_length = has_bytes(message.kind) || message.kind == backends::Request::Kind::get;
  return has_length ? message.bytes : sizeof message.operand;
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

ReceiverCore& AgentClient::in() const noexcept { return core_of(line_.in); }

const void* AgentClient::in_order() const noexcept { return ChannelAccess::end(line_.out)->puts_in_order(); }

bool AgentClient::all_replied() const noexcept { return in().failed() || in().has_landed(sent_.load()); }

/// False: the target has failed meanwhile.
bool AgentClient::await(device::Lane lane, const device::Wait& wait) {
  device::wait(lane, wait, target_, target_.services().engine.helper());
  return !target_.failed();
}

void AgentClient::send(device::Lane lane, std::uint64_t epoch, const backends::Request& request) {
  const bool both =
      await(lane, in().wait_for_peer(epoch)) && await(lane, ChannelAccess::end(line_.out)->wait_for_peer(epoch));
  if (!both) return;
  AgentLine::Message message{request.kind,         request.op,      request.number,
                             request.offset,       request.operand, request.compare,
                             request.local.size(), request.counter, true};
  if (!has_bytes(request.kind)) return send(lane, epoch, message, {}, request.local);
  std::size_t at = 0;
  do {
    const auto part = request.local.subspan(at, std::min(AgentLine::kMost, request.local.size() - at));
    message.offset = request.offset + at;
    message.bytes = part.size();
    at += part.size();
    message.last = at == request.local.size();
    message.counter = message.last ? request.counter : backends::Request::kNone;
    send(lane, epoch, message, part, {});
  } while (at < request.local.size() && !target_.failed());
}

void AgentClient::send(device::Lane lane, std::uint64_t epoch, const AgentLine::Message& message,
                       std::span<const std::byte> bytes, std::span<std::byte> reply) {
  // Before the first part: without room for a reply the owner carries nothing out.
  if (replies_.size() == AgentLine::kDepth) {
    if (!await(lane, in().wait_for_arrival(taken_ + 1, epoch))) return;
    take_one();
  }
  if (!await(lane, core_of(line_.out).wait_for_credit())) return;
  std::byte* const slot = line_.out.acquire({}).data();
  std::memcpy(slot, &message, sizeof message);
  if (!bytes.empty()) std::memcpy(slot + sizeof message, bytes.data(), bytes.size());
  if (message.last) ++sent_;  // first: closing waits for its reply
  line_.out.put({}, 0, sizeof message + bytes.size());
  if (!message.last) return;
  replies_.push_back({epoch, reply});
  await_oldest();
}

void AgentClient::take_one() {
  const Slice reply = line_.in.wait({});  // it is here, or the channel has failed
  const std::span<std::byte> to = replies_.front().to;
  if (!to.empty()) std::memcpy(to.data(), reply.data(), to.size());
  replies_.pop_front();
  await_oldest();
  line_.in.release({});
  ++taken_;
}

void AgentClient::take_replies() {
  while (!replies_.empty()) take_one();
}

bool AgentClient::nothing_returns() const noexcept {
  return std::ranges::all_of(replies_, [](const Reply& one) { return one.to.empty(); });
}

void AgentClient::collect(device::Lane lane, std::uint64_t epoch) {
  if (!replies_.empty() && await(lane, in().wait_for_arrival(sent_, epoch))) take_replies();
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
  services_->engine.watch(*this);
  for (bool stops = false; !stops;) {
    called_.store(false);
    stops = admit_joined();  // first: requests that have arrived before are served
    drop_over();
    if (!stops) await_work();
  }
  services_->engine.forget(*this);
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
      Lines line;
      line.emplace_back(AgentLine(AgentLine::Side::owner, services_, one.of, one.key), one.memory);
      services_->engine.between_answers([&] { lines_.splice(lines_.end(), line); });
    } catch (const std::exception& reason) {  // the target waits for its connection, and times out
      base::log(base::LogLevel::warn, std::string("no line for the atomics of a target: ") + reason.what());
    }
  }
  return stops;
}

/// Closes lines whose targets have closed or failed. That takes locks, and may wait.
void Agent::drop_over() {
  Lines over;
  services_->engine.between_answers([&] {
    for (auto one = lines_.begin(); one != lines_.end();) {
      const auto next = std::next(one);
      if (one->over) over.splice(over.end(), lines_, one);
      one = next;
    }
  });
}

/// Without a wait: the engine's thread may be the one that answers, and it connects ends.
bool Agent::may_answer(const Served& one) noexcept {
  auto& in = core_of(one.line.in);
  const auto& out = core_of(one.line.out);
  if (one.over || !in.may_take() || !out.may_put() || !out.may_acquire()) return false;
  return in.connected() || in.failed() || in.all_taken();
}

bool Agent::has_requests() noexcept { return std::ranges::any_of(lines_, may_answer); }

void Agent::respond(bool alone) noexcept {
  bool answers = false;
  for (Served& one : lines_) {
    if (!may_answer(one)) continue;
    answers = true;
    one.over = !serve(one);
    if (one.over) call();
  }
  if (!answers) return;
  answered_.fetch_add(1, std::memory_order_relaxed);
  if (!alone || alone_.exchange(true)) return;
  call_.parking->wake();
}

/// Requests that no turn of the engine shows: peers store them here.
bool Agent::is_called() noexcept {
  return called_.load() || std::ranges::any_of(lines_, [](const Served& one) {
           return !one.by_turns && !one.over && core_of(one.line.in).may_take();
         });
}

void Agent::await_work() {
  device::Helper* const helper = services_->engine.helper();
  if (helper != nullptr && help_while_alone(*helper)) return;
  sleep();
}

/// Takes turns, in which requests arrive and are answered, until none has arrived for a while or another thread takes
/// turns too: two threads that do so on one core slow both down. Returns whether the agent is called.
bool Agent::help_while_alone(device::Helper& helper) {
  constexpr std::int32_t kOfOthers = 4;
  const Engine& engine = services_->engine;
  for (bool answers = true; answers;) {
    answers = false;
    std::uint64_t answered = answered_.load(std::memory_order_relaxed);
    std::uint32_t turns = engine.helped_so_far();
    const auto ends = [&] {
      ++turns;
      if (const std::uint64_t now = answered_.load(std::memory_order_relaxed); now != answered) {
        answered = now;
        answers = true;
        turns = engine.helped_so_far();  // answers are put, which takes turns too
      }
      return is_called() || static_cast<std::int32_t>(engine.helped_so_far() - turns) > kOfOthers;
    };
    if (device::help_until(helper, ends, base::Clock::time_point::max())) return is_called();
  }
  return false;
}

/// Sleeps where the words of all peers wake it (WaitAnyCore does the same).
void Agent::sleep() {
  alone_.store(false);
  std::vector<base::Parking*> places{call_.parking};
  for (Served& one : lines_) {
    auto& out = core_of(one.line.out);
    one.by_turns = one.by_turns || (out.connected() && !out.is_put_by_stream());
    if (!one.by_turns) core_of(one.line.in).add_places(places);
  }
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  (void)base::wait_until(places, [this] { return is_called() || alone_.load(); });
}

bool Agent::serve(Served& one) {
  AgentLine& line = one.line;
  try {
    // No more than each of the others has in turn.
    for (int i = 0; i < AgentLine::kDepth && may_answer(one); ++i) {
      if (core_of(line.in).all_taken()) return false;
      if (!line.out.credited()) return true;
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
  const bool get = message.kind == backends::Request::Kind::get;
  const std::size_t bytes = bytes_of(message);
  const std::size_t all = one.memory.size();
  std::size_t returned = 0;
  if (message.offset <= all && bytes <= all - message.offset && bytes <= AgentLine::kMost) {
    if (!has_bytes(message.kind)) returned = bytes;
    std::byte* const local = returned == 0 ? slot.data() + sizeof message : line.out.acquire({}).data();
    std::byte* const there = one.memory.data() + message.offset;
    const base::races::Unseen ordered_elsewhere;  // by the reply, and what the target then sends to the owner
    if (get) {
      std::memcpy(local, there, bytes);
    } else if (message.kind == backends::Request::Kind::put) {
      std::memcpy(there, local, bytes);
    } else if (message.kind != backends::Request::Kind::none) {
      backends::change(
          there,
          {message.kind, message.offset, {local, bytes}, message.operand, message.compare, message.op, message.number});
    }
    if (message.counter < counters_.size())
      base::add_one(counters_[message.counter].word, counters_[message.counter].parking);
  }
  line.in.release({});  // first: it travels with the reply
  if (!message.last) return;
  // A thread that waited for the counter goes on before the reply leaves, unless the target waits for bytes.
  if (!std::exchange(one.gives_way, true)) core_of(line.out).give_way();
  core_of(line.out).put_off(message.counter != backends::Request::kNone && returned == 0);
  line.out.put({}, 0, returned);
}

}  // namespace sluice::runtime
