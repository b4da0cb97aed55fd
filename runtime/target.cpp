// SPDX-License-Identifier: Apache-2.0
#include "runtime/target.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/handles.hpp"
#include "runtime/receiver.hpp"
#include "runtime/registry.hpp"

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
  void reach_from(device::Driver& driver) override { access_->reach_from(driver); }
  std::optional<backends::ByKernel> by_kernel(device::Driver*) override { return std::nullopt; }
  bool landed(std::uint64_t) override { return true; }
  /// Atomics of the agent have completed, too.
  bool settled() override { return client == nullptr || client->all_replied(); }
  backends::Held forget_peer() noexcept override { return access_->forget_peer(); }
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
  if (block_ && (block_->offset > window_bytes_ || block_->bytes > window_bytes_ - block_->offset)) {
    // The owner is not told: its counters do not fail by a handle that it has not made.
    record(Code::misuse, "the handle is of bytes that the window does not have", false);
    return nullptr;
  }
  facts_ = facts_of(remote.contents);
  auto accesses = std::make_unique<AccessPut>(link.access(kDepth, *this, std::move(remote.key)), facts_.by_agent);
  accesses_ = accesses.get();
  stores_ = accesses->access().by_stores;
  posts_ = accesses->posted != nullptr;
  if (posts_) services().engine.watch(*accesses->posted);
  return accesses;
}

void TargetCore::stop_posting() noexcept {
  client_.reset();
  notices_.reset();
  if (accesses_ != nullptr && accesses_->posted != nullptr) services().engine.forget(*accesses_->posted);
}

bool TargetCore::close_parts(base::Limit& limit) {
  while (!pieces_.empty()) {
    if (!detail::ChannelAccess::end(pieces_.begin()->second)->close_within(limit)) return false;
    pieces_.erase(pieces_.begin());
  }
  return true;
}

Target TargetCore::open_piece(std::uint64_t offset) {
  Opening what = opening;
  what.key.scope = scope_at(facts_.scope, offset);
  what.key.tag = static_cast<Tag>(services().registry.next_id());
  const auto core = base::make_here<TargetCore>(own_services(), std::move(what), std::nullopt);
  services().registry.open(*core);
  Target piece = detail::ChannelAccess::make<Target>(core);
  try {
    piece.wait_connected();
  } catch (...) {
    piece = Target();  // closes it, as outside of an exception
    throw;
  }
  return piece;
}

const std::shared_ptr<ChannelEnd>& TargetCore::reach_piece(std::size_t& offset, std::size_t bytes) {
  const auto has = [&](const auto& one) {
    const auto& core = static_cast<TargetCore&>(*detail::ChannelAccess::end(one.second));
    return offset >= one.first && offset - one.first < core.window_bytes_;
  };
  auto found = std::ranges::find_if(pieces_, has);
  if (found != pieces_.end()) {
    const auto end = detail::ChannelAccess::end(found->second);
    if (end->failed() || end->shut()) {
      pieces_.erase(found);  // closes it
      end->check();
      found = pieces_.end();
    }
  }
  if (found == pieces_.end()) {
    Target piece = open_piece(offset);
    const auto& core = static_cast<TargetCore&>(*detail::ChannelAccess::end(piece));
    found = pieces_.insert_or_assign(core.facts_.at, std::move(piece)).first;
  }
  const std::uint64_t all = static_cast<TargetCore&>(*detail::ChannelAccess::end(found->second)).window_bytes_;
  const std::uint64_t in_piece = offset - found->first;
  if (bytes > all - in_piece) {
    throw error(Code::bad_argument, epoch() + 1,
                std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                    " do not lie inside the piece of " + std::to_string(all) + " bytes that is attached at offset " +
                    std::to_string(found->first));
  }
  offset = in_piece;
  return detail::ChannelAccess::end(found->second);
}

/// Those that were detached, and have nothing under way, are closed. So is one that has failed, which this throws.
template <class Each>
void TargetCore::for_pieces(Each each) {
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    const std::shared_ptr<ChannelEnd> end = detail::ChannelAccess::end(piece->second);
    if (end->failed() || static_cast<TargetCore&>(*end).is_left()) {
      piece = pieces_.erase(piece);
      end->check();
    } else {
      each(end);
      ++piece;
    }
  }
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

void TargetCore::check_counter(std::uint32_t counter) const {
  const std::uint32_t most = connected() ? facts_.counters : Window::kMostCounters;
  if (counter < most) return;
  throw error(Code::bad_argument, epoch() + 1,
              "there is no counter " + std::to_string(counter) + " among " + std::to_string(most));
}

void TargetCore::check_fired_by_stream() const {
  if (!posts_) return;
  throw error(Code::unsupported, epoch() + 1, "accesses that the engine posts, on the stream of a GPU: " + describe());
}

void TargetCore::check_aligned(std::uint64_t offset, std::size_t size) const {
  if (in_window(offset) % size == 0) return;
  throw error(Code::bad_argument, epoch() + 1,
              "an atomic at offset " + std::to_string(offset) + ", which is no multiple of " + std::to_string(size) +
                  " in the window");
}

void TargetCore::check_on_host(const Slice& local) const {
  if (extent_of(local).driver != nullptr)
    throw error(Code::unsupported, epoch() + 1, "an atomic takes no numbers from memory of a GPU");
}

/// A GPU's stream cannot send requests to the agent.
void TargetCore::check_stream(Stream stream, bool atomic, std::uint32_t counter) const {
  if (!device::of_gpu(stream)) return;
  backends::Request request{atomic ? Kind::accumulate : Kind::put, 0, {}};
  request.counter = counter;
  if (needs_agent(request)) {
    throw error(Code::unsupported, epoch() + 1,
                "on the stream of a GPU, since a thread of the owner carries it out: " + describe());
  }
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

/// The epoch first: closing waits for it, or it finds the window closed.
template <class Work>
void TargetCore::carry_out_now(Work work) {
  const std::uint64_t epoch = begin();
  if (shut()) [[unlikely]] {
    backends::fail_shut(*this);
  } else {
    work();
  }
  base::raise(done, epoch, done_parking);
  check();
}

void TargetCore::move(Stream stream, Kind kind, const Slice& local, std::uint64_t offset, Notify notify) {
  const std::uint32_t counter = notify.tagged ? kNone : notify.number;
  check_range(offset, local.bytes());
  if (notify.tagged && device::of_gpu(stream))
    throw error(Code::unsupported, epoch() + 1, "a notice with a tag, on the stream of a GPU");
  if (backends::MappedAccess* const now = stores_now(stream); now != nullptr && !notify.tagged) {
    if (extent_of(local).driver == nullptr) [[likely]] {
      return carry_out_now([&] {
        if (kind == Kind::get) {
          now->get_now(in_window(offset), local.data(), local.bytes());
        } else {
          now->put_now(in_window(offset), local.data(), local.bytes());
        }
        now->count_now(counter);
      });
    }
  }
  check_stream(stream, false, counter);
  keep(local);
  const std::uint64_t epoch = begin();
  const device::Extent bytes = extent_of(local);
  const auto work = [this, epoch, kind, notify, offset, data = bytes.data, size = bytes.bytes,
                     gpus = bytes.driver](device::Lane lane) {
    backends::Request request{kind, offset, {data, size}};
    request.gpus = gpus;
    if (!notify.tagged) request.counter = notify.number;
    fire(lane, epoch, request);
    if (notify.tagged) give_notice(lane, epoch, request, notify.number);
    ran(lane);
  };
  will_run(stream);
  issue(stream, work, [this, stream, epoch] { firing_refused(stream, epoch); });
  if (stream.kind() != Stream::Kind::host) check();
}

void TargetCore::move(Stream stream, Kind kind, const Slice& local, std::span<const Extent> extents) {
  check_extents(local, extents);
  for (const Extent& extent : extents) move(stream, kind, local.slice(extent.here, extent.bytes), extent.there);
}

void TargetCore::check_extents(const Slice& local, std::span<const Extent> extents) const {
  for (const Extent& extent : extents) {
    if (extent.here > local.bytes() || extent.bytes > local.bytes() - extent.here) {
      throw error(Code::bad_argument, epoch() + 1,
                  std::to_string(extent.bytes) + " bytes from " + std::to_string(extent.here) +
                      " do not lie inside the " + std::to_string(local.bytes()) + " of the slice");
    }
    check_range(extent.there, extent.bytes);
  }
}

void TargetCore::change(Stream stream, Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare,
                        const Slice& old) {
  check_range(offset, sizeof operand);
  check_aligned(offset, sizeof operand);
  if (old.bytes() != sizeof operand) {
    throw error(Code::bad_argument, epoch() + 1,
                "the value before takes a slice of 8 bytes, not " + std::to_string(old.bytes()));
  }
  check_on_host(old);
  check_stream(stream, true, kNone);
  if (backends::MappedAccess* const now = stores_now(stream); now != nullptr && !facts_.by_agent) {
    return carry_out_now([&] {
      const std::uint64_t before = now->change_now(kind, in_window(offset), operand, compare);
      std::memcpy(old.data(), &before, sizeof before);
    });
  }
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
  issue(stream, work, [this, stream, epoch] { firing_refused(stream, epoch); });
}

std::uint64_t TargetCore::change(Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare,
                                 std::optional<Timeout> timeout) {
  constexpr std::size_t kWord = sizeof operand;
  check_range(offset, kWord);
  check_aligned(offset, kWord);
  if (backends::MappedAccess* const now = stores_now({}); now != nullptr && !facts_.by_agent) {
    std::uint64_t before = 0;
    carry_out_now([&] { before = now->change_now(kind, in_window(offset), operand, compare); });
    return before;
  }
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
  if (epoch > kDepth && lane.gpu == nullptr) await_accesses(lane, epoch - kDepth);
  report_failure(lane);
  if (connected() && accesses_ != nullptr) {
    request.offset = in_window(request.offset);
    if (needs_agent(request) && !shut()) return fire_by_agent(lane, epoch, request);
    return accesses_->access().enqueue(lane, epoch, request);
  }
  backends::fail_shut(*this);
  device::raise(lane, done, epoch, done_parking);
}

/// The bytes are there, or here, before the owner sees the notice.
void TargetCore::give_notice(device::Lane lane, std::uint64_t epoch, const backends::Request& request, Tag tag) {
  await_accesses(lane, epoch);
  if (failed()) return;
  with_agent([&] {
    if (notices_ == nullptr) notices_ = std::make_unique<NoticeSender>(*this, opening, facts_.scope);
    notices_->send(lane, {facts_.at + request.offset, request.local.size(), tag});
  });
}

bool TargetCore::needs_agent(const backends::Request& request) const noexcept {
  if (request.atomic()) return facts_.by_agent;
  return request.counter != kNone && !accesses_->access().counts;
}

/// The agent raises the counter after what it has put or changed itself. Else that must have completed before.
void TargetCore::fire_by_agent(device::Lane lane, std::uint64_t epoch, backends::Request request) {
  backends::Request access{Kind::put, 0, {}};
  if (request.counter != kNone && request.counter >= facts_.counters) {
    fail(Code::misuse,
         "counter " + std::to_string(request.counter) + " of a window that has " + std::to_string(facts_.counters));
    return accesses_->access().enqueue(lane, epoch, access);
  }
  if (request.kind == Kind::get || request.gpus != nullptr ||
      (request.kind == Kind::put && request.local.size() > AgentLine::kMost)) {
    const std::uint32_t counter = std::exchange(request.counter, kNone);
    accesses_->access().enqueue(lane, epoch, std::exchange(request, access));
    await_accesses(lane, epoch);
    request.counter = counter;
    if (!failed()) with_agent([&] { send(lane, epoch, request); });
    return;
  }
  with_agent([&] { send(lane, epoch, request); });
  accesses_->access().enqueue(lane, epoch, access);
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
    client_ = std::make_unique<AgentClient>(*this, opening, facts_.scope);
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

void TargetCore::accumulate(Stream stream, Op op, Number number, const Slice& local, std::uint64_t offset,
                            std::uint32_t counter) {
  const bool bits = op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor;
  if (bits && (number == Number::float32 || number == Number::float64))
    throw error(Code::bad_argument, epoch() + 1, "an operation on the bits of floating-point numbers");
  if (op == Op::product || number == Number::float16 || number == Number::bfloat16)
    throw error(Code::bad_argument, epoch() + 1, "products and numbers of 16 bits are of collectives alone");
  const std::size_t size = backends::size_of(number);
  check_range(offset, local.bytes());
  check_on_host(local);
  check_stream(stream, true, counter);
  check_aligned(offset, size);
  if (local.bytes() % size != 0) {
    throw error(Code::bad_argument, epoch() + 1,
                std::to_string(local.bytes()) + " bytes are no numbers of " + std::to_string(size));
  }
  keep(local);
  const std::uint64_t epoch = begin();
  const std::span<std::byte> bytes{local.data(), local.bytes()};
  const auto work = [this, epoch, op, number, counter, offset, bytes](device::Lane lane) {
    backends::Request request{Kind::accumulate, offset, bytes};
    request.op = op;
    request.number = number;
    request.counter = counter;
    fire(lane, epoch, request);
    ran(lane);
  };
  will_run(stream);
  issue(stream, work, [this, stream, epoch] { firing_refused(stream, epoch); });
  if (stream.kind() != Stream::Kind::host) check();
}

void TargetCore::flush(Stream stream, bool local) {
  check();
  const std::uint64_t last = epoch();
  if (stream.kind() == Stream::Kind::program_order && base::reached(done, last) && agent_.load() == nullptr) return;
  will_run(stream);
  issue(
      stream,
      [self = owner_of_work(), last, local](device::Lane lane) {
        auto& target = static_cast<TargetCore&>(*self);
        target.fail_if_stopped(lane);
        target.await_accesses(lane, last);
        AgentClient* const agent = target.agent_;
        if (agent != nullptr && !(local && agent->nothing_returns()))
          target.with_agent([&] { agent->collect(lane, last); });
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

std::vector<Extent> strided(std::size_t count, std::size_t bytes, std::size_t here_apart, std::size_t there_apart,
                            std::size_t there) {
  std::vector<Extent> extents(count);
  for (std::size_t i = 0; i < count; ++i) extents[i] = {i * here_apart, there + i * there_apart, bytes};
  return extents;
}

namespace {

/// The target, bound to the stream.
TargetCore& on(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream) {
  auto& core = static_cast<TargetCore&>(not_empty(end));
  if (core.bound_to(stream)) [[likely]]
    return core;
  core.bind_slowly(stream);
  if (device::of_gpu(stream)) core.check_fired_by_stream();
  return core;
}

/// The target of these bytes, bound to the stream: the window's, or that of an attached piece, in which `offset` then
/// counts.
TargetCore& reaching(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, std::size_t& offset,
                     std::size_t bytes) {
  TargetCore& whole = on(end, stream);
  if (whole.reaches(offset, bytes)) [[likely]]
    return whole;
  return on(whole.reach_piece(offset, bytes), stream);
}

/// Like `reaching`, for an access that raises `counter`.
TargetCore& counting(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, std::size_t& offset,
                     std::size_t bytes, std::uint32_t counter) {
  TargetCore& core = reaching(end, stream, offset, bytes);
  core.check_counter(counter);
  return core;
}

/// Moves extents, unless one of them is refused.
void move_all(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, Kind kind, const Slice& local,
              std::span<const Extent> extents) {
  TargetCore& whole = on(end, stream);
  const auto is_own = [&](const Extent& extent) { return whole.reaches(extent.there, extent.bytes); };
  if (std::ranges::all_of(extents, is_own)) return whole.move(stream, kind, local, extents);
  std::vector<std::pair<TargetCore*, Extent>> all;
  for (Extent extent : extents) {
    TargetCore& core = reaching(end, stream, extent.there, extent.bytes);
    core.check_extents(local, {&extent, 1});
    all.emplace_back(&core, extent);
  }
  for (auto& [core, extent] : all) core->move(stream, kind, local, {&extent, 1});
}

TargetCore& target(const std::shared_ptr<runtime::ChannelEnd>& end) {
  return static_cast<TargetCore&>(usable_here(end));
}

void flush_all(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, bool local) {
  TargetCore& whole = on(end, stream);
  whole.flush(stream, local);
  whole.for_pieces([&](const auto& piece) { on(piece, stream).flush(stream, local); });
}

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

}  // namespace

std::size_t Target::bytes() const {
  target(end_).wait_connected({});
  return target(end_).bytes();
}

void Target::put(Stream stream, const Slice& source, std::size_t offset) {
  TargetCore& core = reaching(end_, stream, offset, source.bytes());
  core.move(stream, Kind::put, source, offset);
}
void Target::get(Stream stream, const Slice& target, std::size_t offset) {
  TargetCore& core = reaching(end_, stream, offset, target.bytes());
  core.move(stream, Kind::get, target, offset);
}
void Target::accumulate(Stream stream, Op op, Number number, const Slice& numbers, std::size_t offset) {
  TargetCore& core = reaching(end_, stream, offset, numbers.bytes());
  core.accumulate(stream, op, number, numbers, offset);
}
void Target::put_notify(Stream stream, const Slice& source, std::size_t offset, std::uint32_t counter) {
  TargetCore& core = counting(end_, stream, offset, source.bytes(), counter);
  core.move(stream, Kind::put, source, offset, {counter});
}
void Target::get_notify(Stream stream, const Slice& target, std::size_t offset, std::uint32_t counter) {
  TargetCore& core = counting(end_, stream, offset, target.bytes(), counter);
  core.move(stream, Kind::get, target, offset, {counter});
}
void Target::put_tagged(Stream stream, const Slice& source, std::size_t offset, Tag tag) {
  TargetCore& core = reaching(end_, stream, offset, source.bytes());
  core.move(stream, Kind::put, source, offset, {tag, true});
}
void Target::get_tagged(Stream stream, const Slice& target, std::size_t offset, Tag tag) {
  TargetCore& core = reaching(end_, stream, offset, target.bytes());
  core.move(stream, Kind::get, target, offset, {tag, true});
}
void Target::accumulate_notify(Stream stream, Op op, Number number, const Slice& numbers, std::size_t offset,
                               std::uint32_t counter) {
  TargetCore& core = counting(end_, stream, offset, numbers.bytes(), counter);
  core.accumulate(stream, op, number, numbers, offset, counter);
}
void Target::notify(Stream stream, std::uint32_t counter) { put_notify(stream, {}, 0, counter); }
void Target::fetch_add(Stream stream, std::size_t offset, std::uint64_t value, const Slice& old) {
  TargetCore& core = reaching(end_, stream, offset, kWordBytes);
  core.change(stream, Kind::fetch_add, offset, value, 0, old);
}
void Target::swap(Stream stream, std::size_t offset, std::uint64_t value, const Slice& old) {
  TargetCore& core = reaching(end_, stream, offset, kWordBytes);
  core.change(stream, Kind::swap, offset, value, 0, old);
}
void Target::compare_swap(Stream stream, std::size_t offset, std::uint64_t expected, std::uint64_t desired,
                          const Slice& old) {
  TargetCore& core = reaching(end_, stream, offset, kWordBytes);
  core.change(stream, Kind::compare_swap, offset, desired, expected, old);
}
void Target::put(Stream stream, const Slice& source, std::span<const Extent> extents) {
  move_all(end_, stream, Kind::put, source, extents);
}
void Target::get(Stream stream, const Slice& target, std::span<const Extent> extents) {
  move_all(end_, stream, Kind::get, target, extents);
}
void Target::flush(Stream stream) { flush_all(end_, stream, false); }
void Target::flush_local(Stream stream) { flush_all(end_, stream, true); }
void Target::drain(std::optional<Timeout> timeout) {
  TargetCore& whole = target(end_);
  whole.drain(timeout);
  whole.for_pieces([&](const auto& piece) { target(piece).drain(timeout); });
}

std::uint64_t Target::fetch_add(std::size_t offset, std::uint64_t value, std::optional<Timeout> timeout) {
  TargetCore& core = reaching(end_, {}, offset, kWordBytes);
  return core.change(Kind::fetch_add, offset, value, 0, timeout);
}
std::uint64_t Target::swap(std::size_t offset, std::uint64_t value, std::optional<Timeout> timeout) {
  TargetCore& core = reaching(end_, {}, offset, kWordBytes);
  return core.change(Kind::swap, offset, value, 0, timeout);
}
std::uint64_t Target::compare_swap(std::size_t offset, std::uint64_t expected, std::uint64_t desired,
                                   std::optional<Timeout> timeout) {
  TargetCore& core = reaching(end_, {}, offset, kWordBytes);
  return core.change(Kind::compare_swap, offset, desired, expected, timeout);
}

}  // namespace sluice
