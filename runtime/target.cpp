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
  AccessPut(std::unique_ptr<backends::Access> access, const WindowFacts& facts)
      : Put(access->fired_by), access_(std::move(access)), of_gpu_(facts.of_gpu), gpu_(facts.gpu) {
    if (!of_gpu_) {
      atomics_ = std::string("; atomics: by ") + (facts.by_agent   ? "a thread of the owner"
                                                  : facts.in_turns ? "the processors of one rank at a time"
                                                                   : "the processor");
    } else if (access_->by_mapping == nullptr) {
      refuse_atomics("it is memory of a GPU, and not mapped here");
    } else {
      atomics_ = std::string("; atomics: ") + backends::kByKernels;
    }
  }

  AgentClient* client = nullptr;  ///< null: no atomic was sent to the agent
  /// Why kernels carry out no atomics in a window of a GPU's memory; empty: those of GPUs that map it do.
  const std::string& no_kernels() const noexcept { return no_kernels_; }

  backends::Access& access() noexcept { return *access_; }
  void enqueue(device::Lane, std::uint64_t, backends::Range) override {}
  void enqueue_all(device::Lane, std::uint64_t, std::uint64_t) override {}
  void reach_from(device::Driver& driver) override {
    access_->reach_from(driver);
    if (of_gpu_ && access_->by_mapping != nullptr) look_at_kernels(driver, driver.current_device());
  }
  std::optional<backends::ByKernel> by_kernel(device::Driver*) override { return std::nullopt; }
  /// With its count.
  bool landed(std::uint64_t) override { return access_->posted == nullptr || access_->posted->settle_counts(); }
  /// Atomics of the agent have completed, too.
  bool settled() override { return landed(0) && (client == nullptr || client->all_replied()); }
  backends::Held forget_peer() noexcept override { return access_->forget_peer(); }
  bool disarmed(bool) override { return true; }
  std::string describe() const override {
    const bool past_cache = access_->by_mapping != nullptr && access_->by_mapping->past_cache_lately();
    return access_->how + (past_cache ? ", past the cache" : "") + atomics_;
  }

 private:
  void refuse_atomics(std::string why) {
    no_kernels_ = std::move(why);
    atomics_ = "; no atomics: " + no_kernels_;
  }
  void look_at_kernels(device::Driver& driver, int gpu) {
    const std::string name = "GPU " + std::to_string(gpu);
    if (!driver.has_kernels(gpu)) return refuse_atomics("no kernels could be loaded for " + name);
    const device::Extent& offered = access_->by_mapping->offered();
    if (offered.driver != &driver || !driver.kernels_reach(offered.data))
      return refuse_atomics("it is memory of another GPU, which kernels of " + name + " do not reach");
    if (!driver.atomic_in(gpu, gpu_))
      refuse_atomics("it is memory of another GPU, which is not known to have native atomics for " + name +
                     " (a GPU hidden by CUDA_VISIBLE_DEVICES is unknown)");
  }

  std::unique_ptr<backends::Access> access_;
  const bool of_gpu_;
  const device::GpuId gpu_;
  std::string atomics_;
  std::string no_kernels_;
};

std::unique_ptr<backends::Put> TargetCore::prepare(backends::Link& link, RemoteEnd& remote) {
  window_bytes_ = remote.slot_bytes;
  if (block_ && (block_->offset > window_bytes_ || block_->bytes > window_bytes_ - block_->offset)) {
    // The owner is not told: its counters do not fail by a handle that it has not made.
    record(Code::misuse, "the handle is of bytes that the window does not have", false);
    return nullptr;
  }
  facts_ = facts_of(remote.contents);
  std::unique_ptr<backends::Access> access;
  try {
    access = link.access(kDepth, *this, std::move(remote.key));
  } catch (const std::exception& reason) {
    if (!facts_.of_gpu) throw;
    // The owner is not told: its counters do not fail by what was never possible.
    record(Code::unsupported, std::string("the window's memory of a GPU cannot be reached: ") + reason.what(), false);
    return nullptr;
  }
  auto accesses = std::make_unique<AccessPut>(std::move(access), facts_);
  accesses_ = accesses.get();
  maps_ = accesses->access().by_mapping;
  if (maps_ != nullptr) mappings_.assign(maps_->mappings().begin(), maps_->mappings().end());
  if (maps_ != nullptr && maps_->offered().driver == nullptr) stores_ = maps_;
  if (maps_ != nullptr && facts_.in_turns) maps_->take_turns(services().rank);
  if (!facts_.by_agent) words_ = stores_;
  posted_ = accesses->access().posted;
  posts_ = posted_ != nullptr;
  if (posts_) services().engine.watch(*posted_);
  return accesses;
}

std::shared_ptr<const detail::Block> TargetCore::mapped() {
  if (maps_ == nullptr || bytes() == 0) return nullptr;
  auto block = base::make_here<detail::Block>();
  block->world = own_services();
  block->rank = opening.rank;
  block->extent = maps_->offered();
  block->extent.data += block_ ? block_->offset : 0;
  block->extent.bytes = bytes();
  std::vector<std::shared_ptr<const void>> held;
  for (const auto& mapping : mappings_) held.push_back(mapping.lock());
  check();  // before the peer's memory is unmapped the target fails, or is closed
  if (shut() || std::ranges::find(held, nullptr) != held.end())
    throw error(Code::closed, 0, "mapped: the owner has closed the window");
  for (const auto& [name, transport] : services().transports) block->pins.push_back(transport->pin(block->extent));
  // Behind the pins, which end first.
  for (auto& mapping : held) block->pins.push_back(std::move(mapping));
  return block;
}

void TargetCore::stop_posting() noexcept {
  agent_ = nullptr;
  if (accesses_ != nullptr) accesses_->client = nullptr;
  client_.reset();
  notices_.reset();
  if (posts_) services().engine.forget(*posted_);
}

bool TargetCore::close_parts(base::Limit& limit) {
  while (!pieces_.empty()) {
    if (!core_of(pieces_.begin()->second.target).close_within(limit)) return false;
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

TargetCore& TargetCore::core_of(const Target& piece) {
  return static_cast<TargetCore&>(*detail::ChannelAccess::end(piece));
}

/// The piece with this byte, as far as it is known and its owner has not detached it. Pieces that are attached do not
/// overlap, so between the beginning of a piece and its bytes there is none but one that was detached.
TargetCore::ReachedPieces::iterator TargetCore::known_piece(std::uint64_t offset) {
  for (auto piece = pieces_.upper_bound(offset); piece != pieces_.begin();) {
    --piece;
    const std::shared_ptr<ChannelEnd> end = detail::ChannelAccess::end(piece->second.target);
    const bool has_byte = offset - piece->first < static_cast<TargetCore&>(*end).window_bytes_;
    if (!end->failed() && !end->shut()) return has_byte ? piece : pieces_.end();
    if (!has_byte) continue;
    piece = pieces_.erase(piece);  // closes it
    end->check();
  }
  return pieces_.end();
}

/// Opens the piece with this byte. Now and then it closes those that were detached and have nothing under way: a
/// program may attach and detach for ever.
TargetCore::ReachedPieces::iterator TargetCore::new_piece(std::uint64_t offset) {
  constexpr std::size_t kFew = 64;
  if (pieces_.size() > kFew + 2 * pieces_at_tidying_) {
    std::erase_if(pieces_, [](const auto& one) { return core_of(one.second.target).is_left(); });
    pieces_at_tidying_ = pieces_.size();
  }
  Target piece = open_piece(offset);
  const std::uint64_t at = core_of(piece).facts_.at;
  return pieces_.insert_or_assign(at, ReachedPiece{std::move(piece)}).first;
}

const std::shared_ptr<ChannelEnd>& TargetCore::reach_piece(std::size_t& offset) {
  auto piece = known_piece(offset);
  if (piece == pieces_.end()) piece = new_piece(offset);
  if (!std::exchange(piece->second.used, true)) used_pieces_.push_back(piece->first);
  offset -= piece->first;
  return detail::ChannelAccess::end(piece->second.target);
}

bool TargetCore::reaches_all(std::uint64_t offset, std::uint64_t bytes) {
  if (block_) return offset <= block_->bytes && bytes <= block_->bytes - offset;
  while (!reaches(offset, bytes)) {
    std::uint64_t room = 0;
    if (reaches(offset, 1)) {
      room = window_bytes_ - offset;
    } else {
      std::size_t in_piece = offset;
      try {
        const TargetCore& piece = static_cast<TargetCore&>(*reach_piece(in_piece));
        room = piece.window_bytes_ - in_piece;
      } catch (const Error& reason) {
        if (reason.code() != Code::bad_argument) throw;
        return false;
      }
    }
    if (bytes <= room) return true;
    offset += room;
    bytes -= room;
  }
  return true;
}

/// One that was detached, and has nothing under way, is closed. So is one that has failed, which this throws.
template <class Each>
void TargetCore::for_used_pieces(Each each) {
  for (std::size_t i = 0; i < used_pieces_.size();) {
    const auto drop = [&] {
      used_pieces_[i] = used_pieces_.back();
      used_pieces_.pop_back();
    };
    const auto piece = pieces_.find(used_pieces_[i]);
    if (piece == pieces_.end()) {
      drop();
      continue;
    }
    const std::shared_ptr<ChannelEnd> end = detail::ChannelAccess::end(piece->second.target);
    if (end->failed() || static_cast<TargetCore&>(*end).is_left()) {
      drop();
      pieces_.erase(piece);
      end->check();
      continue;
    }
    each(end);
    if (static_cast<TargetCore&>(*end).idle()) {
      piece->second.used = false;
      drop();
    } else {
      ++i;
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

void TargetCore::refuse_range(std::uint64_t offset, std::uint64_t bytes) const {
  throw error(Code::bad_argument, epoch() + 1,
              std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " do not lie inside the " +
                  std::to_string(this->bytes()) + " that it reaches");
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

void TargetCore::refuse_place(std::uint64_t offset, std::size_t size) const {
  throw error(Code::bad_argument, epoch() + 1,
              "an atomic at offset " + std::to_string(offset) + ", which is no multiple of " + std::to_string(size) +
                  " in the window");
}

void TargetCore::check_atomics_by_kernels(Stream stream) const {
  std::string why = accesses_ == nullptr ? "" : accesses_->no_kernels();
  if (why.empty() && device::of_gpu(stream)) return;
  if (why.empty()) why = backends::kNotByProcessors;
  throw error(Code::unsupported, epoch() + 1, "an atomic on the window: " + why);
}

/// `local`: the operands of an atomic, or where its old value goes.
void TargetCore::check_numbers(Stream stream, const Slice& local) const {
  if (device::of_gpu(stream) && facts_.of_gpu) return let_kernels_reach(local);
  if (extent_of(local).driver != nullptr)
    throw error(Code::unsupported, epoch() + 1, "an atomic by processors takes no numbers from memory of a GPU");
}

/// A GPU's stream copies between memory of the host and a window of a GPU's memory.
void TargetCore::let_stream_reach(const Slice& local) const {
  const auto& block = detail::SliceAccess::block(local);
  if (!facts_.of_gpu || block == nullptr || block->extent.driver != nullptr || local.bytes() == 0) return;
  try {
    const device::OnDevice current(gpu_use()->driver(), gpu_use()->gpu());
    block->reach_from(gpu_use()->driver());
  } catch (const device::StalePages& reason) {
    throw error(Code::unsupported, epoch() + 1, std::string("the GPU cannot use the slice: ") + reason.what());
  } catch (const device::GpuError& reason) {
    throw error(Code::out_of_resources, epoch() + 1, std::string("the GPU cannot use the slice: ") + reason.what());
  }
}

void TargetCore::let_kernels_reach(const Slice& local) const {
  let_stream_reach(local);
  try {
    const device::OnDevice current(gpu_use()->driver(), gpu_use()->gpu());
    if (local.bytes() == 0 || gpu_use()->driver().kernels_reach(local.data())) return;
  } catch (const device::GpuError& reason) {
    throw error(Code::out_of_resources, epoch() + 1, reason.what());
  }
  throw error(Code::unsupported, epoch() + 1,
              "kernels of GPU " + std::to_string(gpu_use()->gpu()) + " do not reach the slice of the atomic");
}

/// Opens the line now: behind a stream that waits, nothing can be mapped.
void TargetCore::let_stream_give_notices(Stream stream) {
  try {
    if (notices_done_ == nullptr) notices_done_ = progress_for(gpu_use()->driver());
  } catch (const device::GpuError& reason) {
    throw error(Code::out_of_resources, epoch() + 1, reason.what());
  }
  if (notices_ == nullptr) notices_ = std::make_unique<NoticeSender>(*this, opening, facts_.scope);
  notices_->use_on(stream);
}

/// On a GPU's stream, which was given some.
bool TargetCore::all_notices_left() const noexcept {
  return base::reached(notices_done_->word, notices_enqueued_) || gpu_use()->lost();
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
  // In this order: an access that has completed was sent to the agent before, if at all.
  const std::uint64_t completed = done.value.load(std::memory_order_acquire);
  const AgentClient* const agent = agent_.load(std::memory_order_acquire);
  const std::uint64_t last = agent == nullptr ? completed : std::min(completed, agent->replied());
  std::erase_if(kept_, [&](const auto& one) { return one.second <= last; });
  kept_.emplace_back(detail::SliceAccess::block(detail::SliceAccess::own(local)), next);
}

void TargetCore::ran(device::Lane lane) noexcept {
  if (lane.host == nullptr) return;
  base::Parking& parking = done_parking;  // of the process: closing may destroy this target now
  if (enqueued_.fetch_sub(1) == 1) parking.wake();
}

/// The epoch first: closing waits for it, or it finds the window closed.
template <class Work>
[[gnu::always_inline]] inline void TargetCore::carry_out_now(Work work) {
  const std::uint64_t epoch = begin();
  if (shut()) [[unlikely]] {
    backends::fail_shut(*this);
  } else {
    work();
  }
  base::raise(done, epoch, done_parking);
  check();
}

[[gnu::always_inline]] inline std::uint64_t TargetCore::change_now(Kind kind, std::uint64_t offset,
                                                                   std::uint64_t operand, std::uint64_t compare,
                                                                   Timeout limit) {
  std::optional<std::uint64_t> before;
  carry_out_now([&] { before = words_->change_now({}, kind, in_window(offset), operand, compare, limit); });
  if (!before) [[unlikely]]
    throw error(Code::timeout, epoch(), "another rank changes the window; nothing was changed");
  return *before;
}

class TargetCore::ChangeNow {
 public:
  explicit ChangeNow(TargetCore& target) : epoch_(target.begin()), done_(target.done), parking_(target.done_parking) {
    if (target.shut()) [[unlikely]]
      refuse(target, epoch_);
  }
  ChangeNow(const ChangeNow&) = delete;
  ChangeNow& operator=(const ChangeNow&) = delete;
  ~ChangeNow() { base::raise(done_, epoch_, parking_); }

  static std::uint64_t add(std::byte* word, std::uint64_t value) noexcept {
    return backends::change_word(word, Kind::fetch_add, value, 0);
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void refuse(TargetCore& target, std::uint64_t epoch) {
    backends::fail_shut(target);
    base::raise(target.done, epoch, target.done_parking);
    target.check();
    throw target.error(Code::closed, epoch, "the window is closed");
  }

  // Loaded before the change: a load behind an instruction that locks waits for it.
  const std::uint64_t epoch_;
  base::Word& done_;
  base::Parking& parking_;
};

[[gnu::always_inline]] inline void TargetCore::move_now(Kind kind, const Slice& local, std::uint64_t offset,
                                                        std::uint32_t counter) {
  carry_out_now([&]() __attribute__((always_inline)) {
    if (kind == Kind::get) {
      stores_->get_now(in_window(offset), local.data(), local.bytes());
    } else {
      stores_->put_now(in_window(offset), local.data(), local.bytes());
    }
    stores_->count_now(counter);
  });
}

void TargetCore::move(Stream stream, Kind kind, const Slice& local, std::uint64_t offset, Notify notify) {
  if (!notify.tagged && moves_now(stream, local, offset)) return move_now(kind, local, offset, notify.number);
  check_range(offset, local.bytes());
  enqueue_move(stream, kind, local, offset, notify);
}

void TargetCore::enqueue_move(Stream stream, Kind kind, const Slice& local, std::uint64_t offset, Notify notify) {
  check_stream(stream, false, notify.tagged ? kNone : notify.number);
  if (device::of_gpu(stream)) {
    let_stream_reach(local);
    if (notify.tagged) let_stream_give_notices(stream);
  }
  keep(local);
  const std::uint64_t epoch = begin();
  const device::Extent bytes = extent_of(local);
  // No more than a HostStream has room for: see Work.
  const auto work = [this, epoch, kind, tagged = notify.tagged, number = notify.number, offset, data = bytes.data,
                     size = bytes.bytes, gpus = bytes.driver](device::Lane lane) {
    backends::Request request{kind, offset, {data, size}};
    request.gpus = gpus;
    if (!tagged) request.counter = number;
    fire(lane, epoch, request);
    if (tagged) give_notice(lane, epoch, request, number);
    ran(lane);
  };
  give(stream, 1, work, [this, stream, epoch, tagged = notify.tagged] { move_refused(stream, epoch, tagged); });
  if (stream.kind() != Stream::Kind::host) check();
}

void TargetCore::move_refused(Stream stream, std::uint64_t epoch, bool tagged) noexcept {
  firing_refused(stream, epoch);
  const std::uint64_t last = notices_enqueued_.load();
  if (!tagged || last == 0 || gpu_use()->raise_behind(stream, notices_done_->word, last)) return;
  notices_enqueued_.store(notices_done_->word.value.load());
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
  check_atomics(stream);
  check_numbers(stream, old);
  check_stream(stream, true, kNone);
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
  give(stream, 1, work, [this, stream, epoch] { firing_refused(stream, epoch); });
}

std::uint64_t TargetCore::change(Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare,
                                 std::optional<Timeout> timeout) {
  constexpr std::size_t kWord = sizeof operand;
  check_range(offset, kWord);
  check_atomics({});
  check_aligned(offset, kWord);
  if (olds_.extent().data == nullptr) olds_ = device::allocate(kDepth * kWord, true);
  std::byte* const old = olds_.extent().data + (epoch() + 1) % kDepth * kWord;
  enqueue_change({}, kind, offset, operand, compare, old);
  base::Limit limit = limit_of(timeout);
  drain(limit);
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
    request.offset = in_window(request.offset);
    refuse_counter(request);
    if (needs_agent(request) && !shut()) return fire_by_agent(lane, epoch, request);
    return accesses_->access().enqueue(lane, epoch, request);
  }
  backends::fail_shut(*this);
  device::raise(lane, done, epoch, done_parking);
}

/// The bytes are there, or here, before the owner sees the notice.
void TargetCore::give_notice(device::Lane lane, std::uint64_t epoch, const backends::Request& request, Tag tag) {
  await_turn(lane, epoch, request.kind, notices_ == nullptr ? nullptr : notices_->in_order());
  if (failed()) return;
  if (lane.gpu != nullptr) ++notices_enqueued_;
  with_agent([&] {
    if (notices_ == nullptr) notices_ = std::make_unique<NoticeSender>(*this, opening, facts_.scope);
    notices_->send(lane, {facts_.at + request.offset, request.local.size(), tag});
  });
  if (lane.gpu != nullptr) lane.gpu->write(notices_done_->word, notices_enqueued_);
}

/// Fails the target if the window has no such counter. Behind its counters may be its lock.
void TargetCore::refuse_counter(const backends::Request& request) noexcept {
  if (request.counter == kNone || request.counter < facts_.counters) return;
  fail(Code::misuse,
       "counter " + std::to_string(request.counter) + " of a window that has " + std::to_string(facts_.counters));
}

bool TargetCore::needs_agent(const backends::Request& request) const noexcept {
  if (request.atomic()) return facts_.by_agent;
  if (request.counter == kNone) return false;
  // The reply of the agent brings the bytes, and it has counted: a round trip less.
  const bool short_get = request.kind == Kind::get && request.local.size() <= AgentLine::kMost;
  return !accesses_->access().counts || (posts_ && facts_.by_agent && short_get);
}

/// The agent raises the counter after what it has put or changed itself. Else that must have completed before.
void TargetCore::fire_by_agent(device::Lane lane, std::uint64_t epoch, backends::Request request) {
  backends::Request access{Kind::none, 0, {}};
  const std::size_t bytes = request.local.size();
  const bool moves = request.kind == Kind::put || request.kind == Kind::get;
  if (request.gpus != nullptr || facts_.of_gpu || (moves && bytes > AgentLine::kMost)) {
    const std::uint32_t counter = std::exchange(request.counter, kNone);
    accesses_->access().enqueue(lane, epoch, request);
    await_turn(lane, epoch, request.kind, client_ == nullptr ? nullptr : client_->in_order());
    request = access;
    request.counter = counter;
    if (!failed()) with_agent([&] { send(lane, epoch, request); });
    return;
  }
  with_agent([&] { send(lane, epoch, request); });
  accesses_->access().enqueue(lane, epoch, access);  // behind it: a closing target awaits both
}

/// On a GPU they have completed: a stream does what it was given in order, and the program orders several streams. A
/// wait there would be a fault: closing does not await flushes, so the stream could read a word that was freed.
void TargetCore::await_accesses(device::Lane lane, std::uint64_t epoch) {
  if (lane.gpu != nullptr) return;
  device::wait(lane, {&done, epoch, &done_parking, epoch, "wait for accesses"}, *this, helper());
}

/// Waits until a put that arrives in this order (see backends::Put) may follow access `epoch`, which it must not pass:
/// once a put is posted that arrives in the same order, else once the access has completed.
void TargetCore::await_turn(device::Lane lane, std::uint64_t epoch, Kind kind, const void* order) {
  const bool in_order = order != nullptr && kind == Kind::put && accesses_->access().in_order() == order;
  if (!in_order) return await_accesses(lane, epoch);
  device::wait(lane, {&posted_->sent, epoch, &done_parking, epoch, "wait to post an access"}, *this, helper());
}

/// Waits until the owner has the counts of all accesses that have completed.
void TargetCore::await_counts(device::Lane lane, std::uint64_t epoch) {
  if (!connected() || !posts_) return;
  const std::uint64_t all = posted_->uncounted();
  if (posted_->settle_counts()) return;
  device::wait(lane, {&posted_->counted, all, &done_parking, epoch, "wait for counts"}, *this, helper());
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
  const auto all_ran = [&] { return enqueued_ == 0 && (notices_given() || failed()); };
  if (!await_in_host(done_parking, all_ran, limit, "drains")) return false;
  AgentClient* const agent = agent_;
  if (agent == nullptr) return true;
  const auto all_replied = [&] { return failed() || agent->all_replied(); };
  if (!await_in_host(*agent->in().wait_for_arrival(0, 0).parking, all_replied, limit, "drains")) return false;
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
  check_atomics(stream);
  check_aligned(offset, size);
  if (local.bytes() % size != 0) {
    throw error(Code::bad_argument, epoch() + 1,
                std::to_string(local.bytes()) + " bytes are no numbers of " + std::to_string(size));
  }
  if (changes_now(stream) && of_host(local)) [[likely]] {
    return carry_out_now([&] {
      words_->accumulate_now({}, op, number, in_window(offset), {local.data(), local.bytes()});
      if (!failed()) words_->count_now(counter);
    });
  }
  check_numbers(stream, local);
  check_stream(stream, true, counter);
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
  give(stream, 1, work, [this, stream, epoch] { firing_refused(stream, epoch); });
  if (stream.kind() != Stream::Kind::host) check();
}

void TargetCore::flush(Stream stream, bool local) {
  check();
  const std::uint64_t last = epoch();
  give(
      stream, 0,
      [self = owner_of_work(), last, local](device::Lane lane) {
        auto& target = static_cast<TargetCore&>(*self);
        base::order_stores();
        target.fail_if_stopped(lane);
        target.await_accesses(lane, last);
        if (!local) target.await_counts(lane, last);
        AgentClient* const agent = target.agent_;
        if (agent != nullptr && !(local && agent->nothing_returns()))
          target.with_agent([&] { agent->collect(lane, last); });
        if (lane.gpu != nullptr && target.notices_ != nullptr) target.with_agent([&] { target.notices_->check(); });
        target.report_failure(lane);
        target.ran(lane);
      },
      [] {});
  if (stream.kind() != Stream::Kind::host) check();
}

void TargetCore::drain(base::Limit& limit) {
  if (!await_landed(complete(limit), limit) || !collect(limit)) not_drained();
  check();
}

void TargetCore::drain_all(std::optional<Timeout> timeout) {
  check_free();
  base::Limit limit = limit_of(timeout);
  drain(limit);
  for_used_pieces([&](const auto& piece) { static_cast<TargetCore&>(*piece).drain(limit); });
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

// The functions below are inlined: to pass a stream or a lambda in memory takes longer than an access.

/// The target, bound to the stream.
[[gnu::noinline]] TargetCore& bound(TargetCore& core, Stream stream) {
  core.bind_slowly(stream);
  if (device::of_gpu(stream)) core.check_fired_by_stream();
  return core;
}
[[gnu::always_inline]] inline TargetCore& on(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream) {
  auto& core = static_cast<TargetCore&>(not_empty(end));
  return core.bound_to(stream) ? core : bound(core, stream);
}

/// The target of an attached piece, in which `offset` then counts.
[[gnu::noinline]] TargetCore& piece_reaching(TargetCore& whole, Stream stream, std::size_t& offset, std::size_t bytes) {
  const std::size_t in_window = offset;
  TargetCore& piece = on(whole.reach_piece(offset), stream);
  if (piece.reaches(offset, bytes)) [[likely]]
    return piece;
  throw whole.error(Code::bad_argument, whole.epoch() + 1,
                    std::to_string(bytes) + " bytes at offset " + std::to_string(in_window) +
                        " do not lie inside the piece of " + std::to_string(piece.bytes()) +
                        " bytes that is attached at offset " + std::to_string(in_window - offset));
}

/// The target of these bytes, bound to the stream: the window's, or that of an attached piece, in which `offset` then
/// counts.
[[gnu::always_inline]] inline TargetCore& reaching(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream,
                                                   std::size_t& offset, std::size_t bytes) {
  TargetCore& whole = on(end, stream);
  if (whole.reaches(offset, bytes)) [[likely]]
    return whole;
  std::size_t in_piece = offset;
  TargetCore& piece = piece_reaching(whole, stream, in_piece, bytes);
  offset = in_piece;
  return piece;
}

/// Like `reaching`, for an access that raises `counter`.
TargetCore& counting(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, std::size_t& offset,
                     std::size_t bytes, std::uint32_t counter) {
  TargetCore& core = reaching(end, stream, offset, bytes);
  core.check_counter(counter);
  return core;
}

/// Calls `each(end of the target, part)` for the parts of an extent, each of which lies in the window itself or in one
/// piece.
template <class Each>
void each_part(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, Extent extent, Each each) {
  TargetCore& whole = on(end, stream);
  do {
    std::size_t offset = extent.there;
    const std::shared_ptr<runtime::ChannelEnd> at =
        whole.reaches(offset, std::min<std::size_t>(extent.bytes, 1)) ? end : whole.reach_piece(offset);
    const std::size_t bytes = std::min<std::size_t>(extent.bytes, on(at, stream).bytes() - offset);
    each(at, Extent{extent.here, offset, bytes});
    extent = {extent.here + bytes, extent.there + bytes, extent.bytes - bytes};
  } while (extent.bytes > 0);
}

/// Moves extents, unless one of them is refused.
void move_all(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, Kind kind, const Slice& local,
              std::span<const Extent> extents) {
  TargetCore& whole = on(end, stream);
  const auto is_own = [&](const Extent& extent) { return whole.reaches(extent.there, extent.bytes); };
  if (std::ranges::all_of(extents, is_own)) return whole.move(stream, kind, local, extents);
  std::vector<std::pair<std::shared_ptr<runtime::ChannelEnd>, Extent>> all;  // keeps pieces that are detached meanwhile
  for (const Extent& extent : extents)
    each_part(end, stream, extent, [&](const auto& at, const Extent& part) {
      on(at, stream).check_extents(local, {&part, 1});
      all.emplace_back(at, part);
    });
  for (auto& [at, part] : all) on(at, stream).move(stream, kind, local, {&part, 1});
}

/// Moves the bytes of a slice, which may lie in several pieces.
[[gnu::noinline]] void move_slowly(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, Kind kind,
                                   const Slice& local, std::size_t offset) {
  TargetCore& whole = on(end, stream);
  if (whole.reaches(offset, local.bytes())) return whole.move(stream, kind, local, offset);
  if (!whole.reaches(offset, 1)) {
    std::size_t in_piece = offset;
    TargetCore& piece = on(whole.reach_piece(in_piece), stream);
    if (piece.reaches(in_piece, local.bytes())) [[likely]]
      return piece.move(stream, kind, local, in_piece);
  }
  const Extent all{0, offset, local.bytes()};
  move_all(end, stream, kind, local, {&all, 1});
}

/// Moves the bytes of a slice.
[[gnu::always_inline]] inline void move_one(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, Kind kind,
                                            const Slice& local, std::size_t offset) {
  TargetCore& whole = on(end, stream);
  if (whole.moves_now(stream, local, offset)) [[likely]]
    return whole.move_now(kind, local, offset);
  move_slowly(end, stream, kind, local, offset);
}

[[gnu::noinline]] TargetCore& target(const std::shared_ptr<runtime::ChannelEnd>& end) {
  return static_cast<TargetCore&>(usable_here(end));
}

void flush_all(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, bool local) {
  const auto flush = [&](TargetCore& core) { core.is_flushed(stream) ? core.check() : core.flush(stream, local); };
  base::order_stores();
  TargetCore& whole = on(end, stream);
  flush(whole);
  whole.for_used_pieces([&](const auto& piece) { flush(on(piece, stream)); });
}

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

/// An atomic whose old value goes to `old`.
[[gnu::always_inline]] inline void change(const std::shared_ptr<runtime::ChannelEnd>& end, Stream stream, Kind kind,
                                          std::size_t offset, std::uint64_t operand, std::uint64_t compare,
                                          const Slice& old) {
  TargetCore& core = reaching(end, stream, offset, kWordBytes);
  if (!core.changes_now(stream, offset) || old.bytes() != kWordBytes || !runtime::of_host(old)) [[unlikely]]
    return core.change(stream, kind, offset, operand, compare, old);
  const std::uint64_t before = core.change_now(kind, offset, operand, compare, kForever);
  std::memcpy(old.data(), &before, sizeof before);
}

/// An atomic in program order. Returns the old value.
[[gnu::always_inline]] inline std::uint64_t change(const std::shared_ptr<runtime::ChannelEnd>& end, Kind kind,
                                                   std::size_t offset, std::uint64_t operand, std::uint64_t compare,
                                                   const std::optional<Timeout>& timeout) {
  TargetCore& core = reaching(end, {}, offset, kWordBytes);
  if (core.changes_now({}, offset)) [[likely]]
    return core.change_now(kind, offset, operand, compare, timeout.value_or(kForever));
  return core.change(kind, offset, operand, compare, timeout);
}

}  // namespace

std::size_t Target::bytes() const {
  target(end_).wait_connected({});
  return target(end_).bytes();
}

Region Target::mapped() const {
  target(end_).wait_connected({});
  return Region(target(end_).mapped());
}

bool Target::reaches(std::size_t offset, std::size_t bytes) {
  TargetCore& whole = target(end_);
  whole.check_free();
  if (!whole.connected()) whole.wait_connected({});
  return whole.reaches_all(offset, bytes);
}

void Target::put(Stream stream, const Slice& source, std::size_t offset) {
  move_one(end_, stream, Kind::put, source, offset);
}
void Target::get(Stream stream, const Slice& target, std::size_t offset) {
  move_one(end_, stream, Kind::get, target, offset);
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
  change(end_, stream, Kind::fetch_add, offset, value, 0, old);
}
void Target::swap(Stream stream, std::size_t offset, std::uint64_t value, const Slice& old) {
  change(end_, stream, Kind::swap, offset, value, 0, old);
}
void Target::compare_swap(Stream stream, std::size_t offset, std::uint64_t expected, std::uint64_t desired,
                          const Slice& old) {
  change(end_, stream, Kind::compare_swap, offset, desired, expected, old);
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
  base::order_stores();
  const auto* const core = static_cast<const TargetCore*>(end_.get());
  if (core != nullptr && core->origin.here() && core->is_free() && core->is_drained() && !core->failed()) [[likely]]
    return;
  target(end_).drain_all(timeout);
}

std::uint64_t Target::fetch_add(std::size_t offset, std::uint64_t value, std::optional<Timeout> timeout) {
  return change(end_, Kind::fetch_add, offset, value, 0, timeout);
}
std::uint64_t Target::swap(std::size_t offset, std::uint64_t value, std::optional<Timeout> timeout) {
  return change(end_, Kind::swap, offset, value, 0, timeout);
}
std::uint64_t Target::compare_swap(std::size_t offset, std::uint64_t expected, std::uint64_t desired,
                                   std::optional<Timeout> timeout) {
  return change(end_, Kind::compare_swap, offset, desired, expected, timeout);
}

detail::MappedWords detail::MappedWords::of(const Target& target) {
  MappedWords words;
  words.target_ = &on(ChannelAccess::end(target), {});
  words.words_ = words.target_->words();
  return words;
}

[[gnu::always_inline]] inline TargetCore& detail::MappedWords::target() const {
  return target_->bound_to({}) ? *target_ : bound(*target_, {});
}

std::uint64_t detail::MappedWords::add(std::size_t offset, std::uint64_t value) const {
  const TargetCore::ChangeNow change(target());
  return TargetCore::ChangeNow::add(words_ + offset, value);
}

std::pair<std::uint64_t, std::uint64_t> detail::MappedWords::add_to_both(const MappedWords& first, std::size_t in_first,
                                                                         const MappedWords& second,
                                                                         std::size_t in_second, std::uint64_t value) {
  const auto add = [&] {
    const std::uint64_t was_first = TargetCore::ChangeNow::add(first.words_ + in_first, value);
    return std::pair(was_first, TargetCore::ChangeNow::add(second.words_ + in_second, value));
  };
  const TargetCore::ChangeNow change(first.target());
  if (second.target_ == first.target_) return add();
  const TargetCore::ChangeNow other(second.target());
  return add();
}

}  // namespace sluice
