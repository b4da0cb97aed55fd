// SPDX-License-Identifier: Apache-2.0
#include "runtime/target.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/handles.hpp"
#include "runtime/receiver.hpp"

namespace sluice::runtime {

/// The accesses of a target, for the parts of an end that know puts.
class TargetCore::AccessPut final : public backends::Put {
 public:
  AccessPut(std::unique_ptr<backends::Access> access, bool by_agent)
      : Put(access->fired_by), posted(access->posted), access_(std::move(access)), by_agent_(by_agent) {}

  AgentClient* client = nullptr;  ///< null: no atomic was sent to the agent
  /// The accesses, if the engine posts them; else null.
  backends::EngineAccess* const posted;

  backends::Access& access() noexcept { return *access_; }
  void enqueue(device::Lane, std::uint64_t, backends::Range) override {}
  void enqueue_all(device::Lane, std::uint64_t, std::uint64_t) override {}
  void reach_from(device::Driver&) override {}
  std::optional<backends::ByKernel> by_kernel(device::Driver*) override { return std::nullopt; }
  bool landed(std::uint64_t) override { return true; }
  /// Atomics of the agent have completed, too.
  bool settled() override { return client == nullptr || client->all_replied(); }
  backends::Held forget_peer() noexcept override { return {access_->forget_peer(), {}}; }
  bool disarmed(bool) override { return true; }
  std::string describe() const override {
    return access_->how + "; atomics: by " + (by_agent_ ? "a thread of the owner" : "the processor");
  }

 private:
  std::unique_ptr<backends::Access> access_;
  bool by_agent_;
};

std::unique_ptr<backends::Put> TargetCore::prepare(backends::Link& link, RemoteEnd& remote) {
  window_bytes_ = remote.slot_bytes;
  if (block_ && (block_->offset > window_bytes_ || block_->bytes > window_bytes_ - block_->offset))
    throw std::runtime_error("the handle is of more bytes than the window has");
  atomics_ = atomics_of(remote.contents);
  auto accesses = std::make_unique<AccessPut>(link.access(kDepth, *this, std::move(remote.key)), atomics_.by_agent);
  accesses_ = accesses.get();
  posts_ = accesses->posted != nullptr;
  if (posts_) services().engine.watch(*accesses->posted);
  return accesses;
}

void TargetCore::stop_posting() noexcept {
  client_.reset();
  if (accesses_ != nullptr && accesses_->posted != nullptr) services().engine.forget(*accesses_->posted);
}

base::EndCounts TargetCore::counts() const noexcept {
  return {epoch(), done.value.load(std::memory_order_acquire), 0, kDepth};
}

std::string TargetCore::state() const {
  return "enqueued " + std::to_string(epoch()) + " accesses, completed " +
         std::to_string(done.value.load(std::memory_order_relaxed)) + (connected() ? ", connected" : ", not connected");
}

void TargetCore::check_range(std::uint64_t offset, std::uint64_t bytes) const {
  if (!connected() && !block_) return;
  const std::uint64_t all = this->bytes();
  if (offset <= all && bytes <= all - offset) return;
  throw error(Code::bad_argument, epoch() + 1,
              std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " do not lie inside the " +
                  std::to_string(all) + " that it reaches");
}

void TargetCore::check_aligned(std::uint64_t offset, std::size_t size) const {
  if ((offset + (block_ ? block_->offset : 0)) % size == 0) return;
  throw error(Code::bad_argument, epoch() + 1,
              "an atomic at offset " + std::to_string(offset) + ", which is no multiple of " + std::to_string(size) +
                  " in the window");
}

void TargetCore::check_local(const Slice& local) const {
  const auto& block = detail::SliceAccess::block(local);
  if (block != nullptr && block->extent.driver != nullptr)
    throw error(Code::unsupported, epoch() + 1, "memory of a GPU cannot be put from, or got to");
}

/// Slices that program order has lent do not own their memory.
void TargetCore::keep(const Slice& local) {
  const auto& block = detail::SliceAccess::block(local);
  const std::uint64_t next = epoch() + 1;
  if (block == nullptr) return;
  if (!kept_.empty() && kept_.back().first == block) {
    kept_.back().second = next;
    return;
  }
  const std::uint64_t completed = done.value.load(std::memory_order_acquire);
  const AgentClient* const agent = agent_.load(std::memory_order_acquire);
  if (agent == nullptr || (enqueued_ == 0 && agent->idle()))
    std::erase_if(kept_, [&](const auto& one) { return one.second <= completed; });
  kept_.emplace_back(detail::SliceAccess::block(detail::SliceAccess::own(local)), next);
}

void TargetCore::ran(device::Lane lane) noexcept {
  if (lane.host == nullptr) return;
  base::Parking& parking = done_parking;  // of the process: closing may destroy this target now
  if (enqueued_.fetch_sub(1) == 1) parking.wake();
}

void TargetCore::move(Stream stream, Kind kind, const Slice& local, std::uint64_t offset) {
  check_range(offset, local.bytes());
  check_local(local);
  keep(local);
  const std::uint64_t epoch = begin();
  const std::span<std::byte> bytes{local.data(), local.bytes()};
  const auto work = [this, epoch, kind, offset, bytes](device::Lane lane) {
    fire(lane, epoch, {kind, offset, bytes});
    ran(lane);
  };
  will_run(stream);
  issue(stream, work, [] {});
  if (stream.kind() != Stream::Kind::host) check();
}

void TargetCore::change(Stream stream, Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare,
                        const Slice& old) {
  check_range(offset, sizeof operand);
  check_aligned(offset, sizeof operand);
  if (old.bytes() != sizeof operand) {
    throw error(Code::bad_argument, epoch() + 1,
                "the value before takes a slice of 8 bytes, not " + std::to_string(old.bytes()));
  }
  check_local(old);
  keep(old);
  enqueue_change(stream, kind, offset, operand, compare, old.data());
  if (stream.kind() != Stream::Kind::host) check();
}

void TargetCore::enqueue_change(Stream stream, Kind kind, std::uint64_t offset, std::uint64_t operand,
                                std::uint64_t compare, std::byte* old) {
  const std::uint64_t epoch = begin();
  // No more than a HostStream has room for: see Work.
  const auto work = [this, epoch, kind, offset, operand, compare, old](device::Lane lane) {
    fire(lane, epoch, {kind, offset, {old, sizeof operand}, operand, compare});
    ran(lane);
  };
  will_run(stream);
  issue(stream, work, [] {});
}

std::uint64_t TargetCore::change(Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare,
                                 std::optional<Timeout> timeout) {
  constexpr std::size_t kWord = sizeof operand;
  check_range(offset, kWord);
  check_aligned(offset, kWord);
  if (olds_.extent().data == nullptr) olds_ = device::allocate(kDepth * kWord, true);
  std::byte* const old = olds_.extent().data + (epoch() + 1) % kDepth * kWord;
  enqueue_change({}, kind, offset, operand, compare, old);
  drain(timeout);
  std::uint64_t value = 0;
  std::memcpy(&value, old, kWord);
  return value;
}

void TargetCore::fire(device::Lane lane, std::uint64_t epoch, backends::Request request) {
  fail_if_stopped(lane);
  await_connected(lane, epoch);
  if (epoch > kDepth) await_accesses(lane, epoch - kDepth);
  report_failure(lane);
  if (connected() && accesses_ != nullptr) {
    if (block_) request.offset += block_->offset;
    if (request.atomic() && atomics_.by_agent && !shut()) {
      with_agent([&] { send(lane, epoch, request); });
      request = {Kind::put, 0, {}};
    }
    return accesses_->access().enqueue(lane, epoch, request);
  }
  backends::fail_shut(*this);
  device::raise(lane, done, epoch, done_parking);
}

void TargetCore::await_accesses(device::Lane lane, std::uint64_t epoch) {
  device::wait(lane, {&done, epoch, &done_parking, epoch, "wait for accesses"}, *this, helper());
}

template <class Work>
void TargetCore::with_agent(Work work) noexcept {
  try {
    work();
  } catch (const Error& reason) {
    if (shut()) return backends::fail_shut(*this);
    fail(reason.code(), reason.what());
  } catch (const std::exception& reason) {
    fail(Code::out_of_resources, reason.what());
  }
}

/// Sends an atomic to the agent, which does not check that it is inside the window.
void TargetCore::send(device::Lane lane, std::uint64_t epoch, const backends::Request& request) {
  const std::size_t bytes = request.local.size();
  if (request.offset > window_bytes_ || bytes > window_bytes_ - request.offset) {
    return fail(Code::misuse, std::to_string(bytes) + " bytes at offset " + std::to_string(request.offset) +
                                  " are beyond the window of " + std::to_string(window_bytes_) + " bytes");
  }
  if (client_ == nullptr) {
    client_ = std::make_unique<AgentClient>(*this, opening, atomics_.scope);
    accesses_->client = client_.get();
    agent_.store(client_.get(), std::memory_order_release);
  }
  client_->send(lane, epoch, request);
}

/// Waits until nothing is left for streams to run, and takes the agent's replies. False: not within the limit.
bool TargetCore::collect(base::Limit& limit) {
  const auto all_ran = [&] { return enqueued_ == 0; };
  if (!await_in_host(done_parking, all_ran, limit, "drains")) return false;
  AgentClient* const agent = agent_;
  if (agent == nullptr) return true;
  const auto all_replied = [&] { return failed() || agent->all_replied(); };
  if (!await_in_host(*agent->replies().wait_for_arrival(0, 0).parking, all_replied, limit, "drains")) return false;
  if (!failed()) with_agent([&] { agent->take_replies(); });
  return true;
}

void TargetCore::accumulate(Stream stream, Op op, Number number, const Slice& local, std::uint64_t offset) {
  const bool bits = op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor;
  if (bits && (number == Number::float32 || number == Number::float64))
    throw error(Code::bad_argument, epoch() + 1, "an operation on the bits of floating-point numbers");
  const std::size_t size = backends::size_of(number);
  check_range(offset, local.bytes());
  check_local(local);
  check_aligned(offset, size);
  if (local.bytes() % size != 0) {
    throw error(Code::bad_argument, epoch() + 1,
                std::to_string(local.bytes()) + " bytes are no numbers of " + std::to_string(size));
  }
  keep(local);
  const std::uint64_t epoch = begin();
  const std::span<std::byte> bytes{local.data(), local.bytes()};
  const auto work = [this, epoch, op, number, offset, bytes](device::Lane lane) {
    backends::Request request{Kind::accumulate, offset, bytes};
    request.op = op;
    request.number = number;
    fire(lane, epoch, request);
    ran(lane);
  };
  will_run(stream);
  issue(stream, work, [] {});
  if (stream.kind() != Stream::Kind::host) check();
}

void TargetCore::flush(Stream stream) {
  check();
  const std::uint64_t last = epoch();
  will_run(stream);
  issue(
      stream,
      [self = owner_of_work(), last](device::Lane lane) {
        auto& target = static_cast<TargetCore&>(*self);
        target.fail_if_stopped(lane);
        target.await_accesses(lane, last);
        if (AgentClient* const agent = target.agent_) target.with_agent([&] { agent->collect(lane, last); });
        target.report_failure(lane);
        target.ran(lane);
      },
      [] {});
  if (stream.kind() != Stream::Kind::host) check();
}

void TargetCore::drain(std::optional<Timeout> timeout) {
  base::Limit limit = limit_of(timeout);
  complete(limit);
  if (!collect(limit)) not_drained();
  check();
}

}  // namespace sluice::runtime

namespace sluice {

using detail::not_empty;
using detail::usable_here;
using runtime::TargetCore;
using Kind = TargetCore::Kind;

namespace {

/// The target, bound to the stream.
TargetCore& on(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream) {
  auto& core = static_cast<TargetCore&>(not_empty(end));
  if (core.bound_to(stream)) [[likely]]
    return core;
  if (device::of_gpu(stream))
    throw core.error(Code::unsupported, core.epoch() + 1, "targets are not used on the streams of GPUs");
  core.bind_slowly(stream);
  return core;
}

TargetCore& target(const std::shared_ptr<runtime::ChannelEnd>& end) {
  return static_cast<TargetCore&>(usable_here(end));
}

}  // namespace

std::size_t Target::bytes() const {
  target(end_).wait_connected({});
  return target(end_).bytes();
}

void Target::put(Stream stream, const Slice& source, std::size_t offset) {
  on(end_, stream).move(stream, Kind::put, source, offset);
}
void Target::get(Stream stream, const Slice& target, std::size_t offset) {
  on(end_, stream).move(stream, Kind::get, target, offset);
}
void Target::accumulate(Stream stream, Op op, Number number, const Slice& numbers, std::size_t offset) {
  on(end_, stream).accumulate(stream, op, number, numbers, offset);
}
void Target::fetch_add(Stream stream, std::size_t offset, std::uint64_t value, const Slice& old) {
  on(end_, stream).change(stream, Kind::fetch_add, offset, value, 0, old);
}
void Target::swap(Stream stream, std::size_t offset, std::uint64_t value, const Slice& old) {
  on(end_, stream).change(stream, Kind::swap, offset, value, 0, old);
}
void Target::compare_swap(Stream stream, std::size_t offset, std::uint64_t expected, std::uint64_t desired,
                          const Slice& old) {
  on(end_, stream).change(stream, Kind::compare_swap, offset, desired, expected, old);
}
void Target::flush(Stream stream) { on(end_, stream).flush(stream); }
void Target::drain(std::optional<Timeout> timeout) { target(end_).drain(timeout); }

std::uint64_t Target::fetch_add(std::size_t offset, std::uint64_t value, std::optional<Timeout> timeout) {
  return on(end_, {}).change(Kind::fetch_add, offset, value, 0, timeout);
}
std::uint64_t Target::swap(std::size_t offset, std::uint64_t value, std::optional<Timeout> timeout) {
  return on(end_, {}).change(Kind::swap, offset, value, 0, timeout);
}
std::uint64_t Target::compare_swap(std::size_t offset, std::uint64_t expected, std::uint64_t desired,
                                   std::optional<Timeout> timeout) {
  return on(end_, {}).change(Kind::compare_swap, offset, desired, expected, timeout);
}

}  // namespace sluice
