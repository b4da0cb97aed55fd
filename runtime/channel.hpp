// SPDX-License-Identifier: Apache-2.0
// What the two ends of a channel have in common.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/device.hpp>
#include <sluice/error.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "backends/put.hpp"
#include "base/fork.hpp"
#include "base/limit.hpp"
#include "device/ledger.hpp"
#include "device/retire.hpp"
#include "device/traced.hpp"
#include "runtime/block.hpp"

namespace sluice::detail {
class PlanCore;
}

namespace sluice::runtime {

class World;
struct Peer;

/// A word, for kernels.
inline std::uint64_t* as_kernels_see(base::Word& word) noexcept {
  return reinterpret_cast<std::uint64_t*>(&word.value);
}

/// The driver's GPUs will raise `word`, which is one of a base::Progress.
void reach_progress(device::Driver& driver, base::Word& word);

/// Saturates: `kForever` from now is never.
base::Clock::time_point deadline_after(Timeout timeout) noexcept;

enum class Role : std::uint8_t { sender, receiver };

/// What matches the two ends of a channel.
struct ChannelKey {
  Rank world_peer = 0;
  std::string scope;
  Tag tag = 0;
  Role role = Role::sender;
  bool operator<(const ChannelKey& other) const {
    return std::tie(world_peer, scope, tag, role) < std::tie(other.world_peer, other.scope, other.tag, other.role);
  }
};

/// An end as its owner opened it.
struct Opening {
  ChannelKey key;
  Rank rank = 0;  ///< of this end and of the peer, in the context that it was opened in
  Rank peer = 0;
  Slice memory;
  ChannelOptions options;
  std::string name;
  std::string contents;
  int gpu = -1;  ///< of the stream that the options name, if that is a GPU's
};

/// What an end announces when it closes. A sender: its last epoch, twice.
struct Final {
  std::uint64_t wanted = 0;    ///< epochs up to this one are still waited for, or still come
  std::uint64_t credited = 0;  ///< epochs up to this one are released, or will be by work that is enqueued
};

/// The other end, as it was announced.
struct RemoteEnd {
  std::uint64_t id = 0;
  std::uint64_t slot_bytes = 0;
  int depth = 0;
  std::string contents;
  backends::Key key;
  std::optional<Final> final;                           ///< closed already
  std::optional<std::pair<Code, std::string>> failure;  ///< failed already
};

/// What both ends are. The hot path reads and writes only what the verbs own; everything else is guarded by the world's
/// mutex.
class ChannelEnd : public device::Watch, public device::StreamUser, public std::enable_shared_from_this<ChannelEnd> {
  const std::shared_ptr<World> world_;  // first: the transports outlive what they made

 public:
  ChannelEnd(std::shared_ptr<World> world, Opening what);
  ~ChannelEnd() override;

  // For the engine and the registry, under the world's mutex.
  /// The link to the peer is up: prepares where its puts land. Returns the key to announce.
  /// `more`: the signals of rails beyond the first.
  backends::Key land(backends::Link& link, std::vector<backends::Signal> more);
  /// Where the peer's puts land; none: only a word.
  virtual backends::Slots target() const = 0;
  /// The peer's end is known: from here on the verbs work, unless the landing is undecided.
  void connect(backends::Link& link, RemoteEnd remote);
  /// The peer has told how it reaches the target: now they work.
  void decide(const std::string& obstacle);
  /// The peer has closed its end.
  void peer_closed(const Final& final);
  /// The peer has closed, and nothing here touches its memory any more, nor ever will.
  virtual bool let_go() = 0;
  /// Work was enqueued that the peer's closing has made impossible, and all before it has passed: releases it, with
  /// misuse.
  virtual void refuse_enqueued() = 0;
  /// `refuse_enqueued` has something to wait for.
  bool beyond_final() const noexcept { return closed_by_peer && !failed() && epoch() > last_possible(*closed_by_peer); }
  virtual Final final() const noexcept = 0;
  void peer_let_go() noexcept { let_go_by_peer_ = true; }
  /// The peer is gone: whether it had closed before, and something of it is still to come.
  bool behind() { return closed_by_peer && !failed() && !complete_without(*closed_by_peer); }
  void peer_lost(const std::string& what) noexcept;
  /// This rank goes with the channel open: to the peer it is lost.
  void leave(const std::string& why) noexcept { record(Code::peer_lost, why, true); }
  void peer_failed(Code code, const std::string& what) noexcept { record(code, what, false); }
  /// Stores the poison once more: a late signal may have overwritten it.
  void poison_again() const noexcept;
  /// Once the stream has passed what its driver took, the engine does not wait for the rings that it refused.
  void forget_refused_rings() noexcept;

  void fail(Code code, const std::string& what) noexcept override { record(code, what, true); }
  base::Clock::duration waited(const device::Wait& wait, base::Clock::duration so_far, Timeout limit) noexcept override;
  /// Nobody knows what kernels have still to begin.
  bool may_be_parked() const noexcept override { return gpus() != nullptr && (counted() || !passed()); }
  /// A GPU's stream that waits asks nobody for how long it may: the engine does, now and then.
  void ask_for_stream(base::Clock::time_point now) noexcept;
  /// Kernels count its epochs, and tell nobody.
  bool counted() const noexcept { return counted_.load(std::memory_order_acquire) != nullptr; }
  /// The driver of the GPU whose streams it is used on; null: no GPU's.
  device::Driver* gpus() const noexcept { return gpus_.load(std::memory_order_acquire); }

  // For the user's thread.
  /// The last epoch enqueued: puts of a sender, waits of a receiver. Where kernels count: the last one begun for good.
  std::uint64_t epoch() const noexcept { return last_of(counted_, enqueued_); }
  void check() const {
    if (failed()) throw_failure();
  }
  bool connected() const noexcept { return connected_word_.value.load(std::memory_order_acquire) == 1; }
  void wait_connected(std::optional<Timeout> timeout);
  /// `stated`: the limit as the error states it.
  void wait_connected(base::Limit& limit, Timeout stated);
  void close(std::optional<Timeout> timeout);
  bool close_within(base::Limit& limit);
  std::optional<std::pair<Code, std::string>> failure() const;
  /// Closes as a destructor does: what cannot be closed in time is kept, and reported.
  static void abandon(std::shared_ptr<ChannelEnd> end) noexcept;
  void join_plan();
  void leave_plan() noexcept { planned_ = false; }
  /// Host forms are for channels that are open and not in a committed plan.
  void check_free() {
    if (bound_ <= kPlanned) refuse_bound();
  }
  /// For a plan: neither failed nor closed here.
  void check_driven() const {
    check();
    if (bound_ == kClosed) refuse_bound();
  }
  std::string describe() const;
  virtual std::string state() const = 0;

  const Opening opening;
  const std::uint64_t id;
  const std::size_t slot_bytes;
  const base::Origin origin;
  World& world() noexcept { return *world_; }

  // Guarded by the world's mutex.
  std::uint64_t remote_id = 0;   ///< of the peer's end; 0: not known yet
  bool announced = false;        ///< the peer was told of this end
  std::optional<Final> closing;  ///< what this end announced, or will, at closing
  std::optional<Final> closed_by_peer;
  bool peer_told = false;  ///< the peer's end is closed, and it was told that nothing touches its memory
  /// All enqueued work has run, here and in the peer's memory, and the peer's side lets go: the memory may be freed.
  bool over() { return finished() && let_go_by_peer_ && (gone_ || (settled() && disarmed())); }
  /// The peer does not touch this end's memory any more, nor does anything here wait for it to.
  bool parted() const noexcept { return let_go_by_peer_ && passed(); }
  /// The peer has let go of this end, whose key is to be closed once what is enqueued here has passed.
  bool owes_key() const noexcept { return let_go_by_peer_ && !key_closed_here_ && landing_ != nullptr; }
  /// Once parted: ends what the peer can write to. Returns whether it waits to hear of that.
  bool close_key() {
    key_closed_here_ = true;
    const bool awaited = landing_ != nullptr && landing_->close();
    if (closing) {  // nobody looks any more at what has landed
      stop_taking();
      if (passed()) landing_.reset();  // else what was begun just before reads it, and it goes with this end
    }
    return awaited;
  }
  /// All that is left of this end is what was armed and never rung for: the peer can close its key, whether or not it
  /// closes its end.
  bool leaves_armed() {
    return opening.key.role == Role::sender && remote_id != 0 && !gone_ && finished() && !disarmed() && settled();
  }
  /// The peer hears next that nothing here touches its memory, once what is returned is gone.
  backends::Held forget_peer() noexcept { return put_ == nullptr ? backends::Held() : put_->forget_peer(); }
  /// What our puts wrote to cannot be written to any more.
  void peer_gone() noexcept { key_closed_ = true; }

 protected:
  /// Called once the put is prepared.
  virtual void on_connect(int remote_depth) = 0;
  virtual void on_peer_closed(const Final& final) noexcept = 0;
  /// The peer is gone after it had closed. Returns whether all that was to come from it has come.
  virtual bool complete_without(const Final& final) = 0;
  /// Of the epochs of a channel whose peer has closed.
  virtual std::uint64_t last_possible(const Final& final) const noexcept = 0;
  virtual bool passed() const noexcept = 0;  ///< all enqueued work has run
  /// The epoch whose word some enqueued work may be waiting for; 0: none.
  virtual std::uint64_t waits_for() const noexcept = 0;
  /// All of this end that its stream will use, once connected.
  virtual void reach_own(device::Driver& driver) = 0;
  /// The engine does not touch the landing any more.
  virtual void stop_taking() noexcept = 0;
  virtual backends::Slots source() const = 0;  ///< what our puts read; none: they only raise a word
  /// Why an epoch beyond the limit is refused, when the peer has closed its end.
  virtual std::string why_refused(std::uint64_t epoch) const = 0;

  /// Takes the number of the next epoch, unless it is refused.
  std::uint64_t begin() {
    const std::uint64_t epoch = enqueued_.load(std::memory_order_relaxed) + 1;
    // Before the engine takes it for enqueued.
    if (epoch > limit_.load(std::memory_order_acquire)) refuse(epoch);
    count(epoch);
    if (epoch > limit_.load(std::memory_order_acquire)) {
      enqueued_.store(epoch - 1, std::memory_order_relaxed);
      refuse(epoch);
    }
    return epoch;
  }
  /// Throws if the next epoch would be refused. A plan asks all its channels before it counts an epoch of any.
  void check_next() const {
    if (epoch() + 1 > limit_.load(std::memory_order_acquire)) refuse(epoch() + 1);
  }
  /// Counts what was checked before. If the peer has closed in between, the engine has to look again.
  void count_for_plan();

  /// From now on kernels count the epochs of this end in `epochs`, and what its put fires in `fired`, which are the
  /// same for a sender; they raise `fault` when they are used wrongly. With the world's mutex.
  void let_kernels_count(kernel::Count& epochs, kernel::Count& fired, const std::uint64_t& fault);
  /// Kernels on streams of this kind are to drive this end, if `by_kernel(ledger, driver, fault)` says how: then `use`
  /// is called with that, and the world's mutex. Returns it.
  template <class ByKernel, class Use>
  auto hand_to_kernels(Stream stream, ByKernel by_kernel, Use use) {
    bind(stream);
    wait_connected({});
    if (!passed()) misuse(epoch(), "work of this channel is enqueued and not over");
    device::Driver* const driver = device::of_gpu(stream) ? device::driver(stream.kind()) : nullptr;
    auto end = ready_for_kernels(driver, by_kernel);
    if (!end) throw error(Code::unsupported, epoch(), "no kernel can drive this end: " + describe());
    bound_ = kKernels;
    const auto locked = lock_world();
    use(*end);
    return *end;
  }
  /// As Watch::set_shut, for kernels too: once it has returned, a put has begun or will touch nothing of the peer.
  void shut_end() noexcept {
    set_shut();
    hold_kernels();
    done_parking.wake();  // who drains
  }

  /// Lent in program order, where counting an owner in and out takes as long as a small put; work on any other stream
  /// may outlive the channel.
  Slice slot(std::uint64_t epoch, Stream::Kind used_by) const noexcept {
    using detail::SliceAccess;
    if (used_by == Stream::Kind::program_order) return SliceAccess::lend(opening.memory, slots_.at(epoch), slot_bytes);
    return SliceAccess::make(SliceAccess::block(opening.memory), slots_.at(epoch), slot_bytes);
  }
  /// As device::in_order. What a GPU's driver refuses fails the channel, and will never happen: `refused` sees to it
  /// that it is not waited for.
  template <class F, class Refused>
  void issue(Stream stream, F work, Refused refused) {
    if (!device::of_gpu(stream)) return device::in_order(stream, std::move(work));
    try {
      device::on_gpu(device::GpuCall(stream, gpu_), std::move(work));
    } catch (const device::GpuError& reason) {
      fail(Code::transport, reason.what());
      refused();
    }
  }
  /// On a GPU's stream, behind all that it was given. False: the driver refused.
  bool raise_behind(Stream stream, base::Word& word, std::uint64_t value) const noexcept;
  /// The same for a mark of ours, where `put_` is rung for. If it is refused, nothing is waited for.
  void mark_behind(Stream stream) noexcept;
  /// The driver has refused some of what was to fire epochs up to `last`: of the rest the stream may still come to any.
  void firing_refused(Stream stream, std::uint64_t last) noexcept;
  /// The GPU that its streams are of runs nothing any more. It has failed then.
  bool lost() const noexcept { return lost_; }
  /// The stream has passed the last mark that it was given.
  bool marks_passed() const noexcept;
  /// Nothing is left of what was to fire epochs up to `last`: they are over, or never will be.
  bool fired(std::uint64_t last) const noexcept;
  /// Fails this end if the verb runs on a host stream that has stopped: the verb then moves nothing and waits for
  /// nothing.
  void fail_if_stopped(device::Lane lane) noexcept {
    if (lane.host != nullptr && lane.host->stopped_by() != nullptr) [[unlikely]]
      fail_for(*lane.host);
  }
  /// Reports a failure of this end to the host stream that waited. Call it before the verb counts as completed: closing
  /// may destroy this end right after that.
  void report_failure(device::Lane lane) const noexcept {
    if (lane.host != nullptr && failed()) [[unlikely]]
      report_failure_to(*lane.host);
  }
  void await_connected(device::Lane lane) noexcept {
    if (connected_word_.value.load(std::memory_order_acquire) == 0) await_connected_slowly(lane);
  }
  /// On the lane, once connected: the put or the credit of `epoch`. Without anybody to reach it is over at once.
  void enqueue(device::Lane lane, std::uint64_t epoch, backends::Range part) {
    if (connected() && put_ != nullptr) [[likely]] {
      if (rung_ != nullptr) await_armable(lane, *rung_, epoch);
      put_->enqueue(lane, epoch, part);
    } else {
      device::raise(lane, done, epoch, done_parking);
    }
  }
  /// By the host: what can be armed ahead of the stream is. For a GPU's the engine does that.
  void announce(std::uint64_t epoch, backends::Range part) {
    if (connected() && rung_ != nullptr && gpus() == nullptr) (void)rung_->announce(epoch, part);
  }
  void await_armable(device::Lane lane, const backends::RungPut& put, std::uint64_t epoch) {
    const std::uint64_t most = put.most_enqueued();
    if (epoch <= most) return;
    if (lane.gpu != nullptr) return await_room(lane, epoch - most);
    device::wait(lane, {&done, epoch - most, &done_parking, epoch, "wait for room"}, *this, helper_);
  }
  /// Blocks the host: what follows cannot be given to a GPU's stream before.
  void await_room(device::Lane lane, std::uint64_t last_done);
  /// Closing, and all enqueued work has run. Shut from then on: what `settled` disposes of is not armed anew for
  /// kernels.
  bool finished() noexcept {
    if (!closing || !passed()) return false;
    set_shut();
    return true;
  }
  /// Nothing of our puts is under way to the peer's memory any more. Once they are shut and over here.
  bool settled() const { return put_ == nullptr || put_->settled(); }
  bool disarmed() const { return put_ == nullptr || put_->disarmed(key_closed_); }
  /// Blocks the host until `last()` epochs are over here. Returns how many those are.
  template <class Last>
  std::uint64_t complete_until(Last last, base::Limit& limit) {
    check();
    if (!await_kernels(limit)) not_drained();
    const std::uint64_t epoch = last();
    if (!await_done(epoch, limit)) not_drained();
    check();
    return epoch;
  }
  base::Limit limit_of(std::optional<Timeout> timeout) const noexcept {
    return base::Limit(timeout.value_or(wait_limit()));
  }
  /// The last epoch that kernels have begun for good, where they count.
  static std::uint64_t last_of(const std::atomic<kernel::Count*>& counted,
                               const std::atomic<std::uint64_t>& by_host) noexcept {
    const kernel::Count* const count = counted.load(std::memory_order_acquire);
    return count == nullptr ? by_host.load(std::memory_order_relaxed) : kernel::load_acquire(count->entered);
  }
  /// The same with one that they may yet take back, for who wants nothing to be touched any more; if they count not,
  /// `last`.
  static std::uint64_t begun_of(const std::atomic<kernel::Count*>& counted, std::uint64_t last) noexcept {
    kernel::Count* const count = counted.load(std::memory_order_acquire);
    return count == nullptr ? last : std::atomic_ref(count->begun).load();
  }
  Timeout wait_limit() const noexcept;
  bool await_done(std::uint64_t last, base::Limit& limit) const;
  bool await_landed(std::uint64_t last, base::Limit& limit) const;
  [[noreturn, gnu::cold]] void not_drained() const;
  /// Blocks the host until `ready()`, up to `limit`, and says now and then that it still does.
  template <class Ready>
  bool await_in_host(base::Parking& parking, Ready ready, base::Limit& limit) const {
    Warning warning{epoch(), next_warning()};
    return await_in_host(parking, ready, limit, warning);
  }
  /// When a wait for an epoch says next that it still waits.
  struct Warning {
    std::uint64_t epoch = 0;
    base::Clock::time_point at{};
  };
  /// The same in several calls, for who asks again and again.
  template <class Ready>
  bool await_in_host(base::Parking& parking, Ready ready, base::Limit& limit, Warning& warning) const {
    const base::trace::Span slice("host waits", traced, epoch());
    if (help_in_host(ready, limit.next())) return true;
    while (!base::wait_until(parking, ready, std::min(limit.next(), warning.at))) {
      if (base::Clock::now() >= warning.at) warn(warning);
      if (limit.over()) return look(ready);  // it may have arrived while the process stood still
    }
    return true;
  }
  /// Set before `connected`.
  device::Helper* helper() const noexcept { return connected() ? helper_ : nullptr; }
  /// Takes the engine's turns at first, as a stream that waits does.
  template <class Ready>
  bool help_in_host(Ready ready, base::Clock::time_point deadline) const {
    return helper() != nullptr && device::help_until(*helper(), ready, deadline);
  }
  /// Once, but not without having moved what can be moved.
  template <class Ready>
  bool look(Ready ready) const {
    if (ready()) return true;
    if (helper() != nullptr) helper()->look();
    return helper() != nullptr && ready();
  }
  base::Clock::time_point next_warning() const noexcept;
  void warn(Warning& warning) const;
  [[noreturn, gnu::cold]] void throw_failure() const;
  [[noreturn, gnu::cold]] void misuse(std::uint64_t epoch, const std::string& what) const;
  Error error(Code code, std::uint64_t epoch, const std::string& what) const;
  /// Throws why a call is refused whose epoch is beyond the limit.
  [[noreturn, gnu::cold]] void refuse(std::uint64_t epoch) const;
  void lower_limit(std::uint64_t limit) noexcept;

  /// The stream of a call is of the kind that this channel is used with, in this process.
  void bind(Stream stream) {
    if (bound_ != here_with(stream) || !device::usable(stream) || device::of_gpu(stream)) [[unlikely]]
      bind_slowly(stream);
  }

  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  /// Epochs above this are refused: 0 once failed, the last that the peer allows once it has closed.
  std::atomic<std::uint64_t> limit_{kNoLimit};

  const backends::Slots slots_;
  bool stale_ = false;  ///< the driver of its streams' GPU has other pages at their addresses
  std::unique_ptr<backends::Put> put_;
  backends::RungPut* rung_ = nullptr;  // the same, if it is one; set before `connected`
  std::unique_ptr<backends::Landing> landing_;
  device::Helper* helper_ = nullptr;
  backends::Signal word_;                        ///< the one that the peer raises
  std::vector<backends::Signal> more_words_;     ///< of a striped channel, which rise with it
  std::atomic<base::Progress*> taken_{nullptr};  ///< what the engine has taken from the landing for a GPU's stream
  std::atomic<kernel::Count*> counted_{nullptr};
  std::atomic<kernel::Count*> fired_{nullptr};
  // Where `put_` is rung for on a GPU's stream: what no other word tells of, that the stream has passed.
  std::atomic<base::Progress*> marks_{nullptr};
  std::atomic<std::uint64_t> marked_{0};   // which it was given
  std::atomic<std::uint64_t> refused_{0};  // epochs that the driver refused, and that are not rung for

 private:
  friend class sluice::detail::PlanCore;
  void count(std::uint64_t epoch) noexcept {
    enqueued_.store(epoch, std::memory_order_relaxed);
    // Against the engine, which sets the limit and then looks at the epoch: one of the two sees the other.
    base::light_fence();
  }
  [[gnu::cold]] void await_connected_slowly(device::Lane lane) noexcept;
  void record(Code code, const std::string& what, bool tell_peer) noexcept;
  /// In what the two ends are not alike that must be; empty: in nothing.
  std::string disagreement(const RemoteEnd& remote) const;
  /// The value of `bound_` in a channel that this process uses with streams of this kind. So one comparison finds
  /// another kind, a plan, and a fork.
  static std::int64_t here_with(Stream stream) noexcept {
    return base::process_if_known() + static_cast<std::int64_t>(stream.kind());
  }
  [[gnu::cold]] void bind_slowly(Stream stream);
  void check_bindable(Stream stream);
  void bind_to_gpu(Stream stream);
  void reach_from(device::Driver& driver, int gpu);
  void reach_named_stream();
  void ask_for_gpu(base::Clock::time_point now) noexcept;
  void begin_working();
  base::trace::Channel trace_channel() const;
  [[noreturn, gnu::cold]] void refuse_bound() const;
  void poison() noexcept;
  void poison_more_words() const noexcept;
  [[gnu::cold]] void fail_for(const HostStream::Impl& stream) noexcept;
  [[gnu::cold]] void report_failure_to(HostStream::Impl& stream) const noexcept;
  bool still_waits(const device::Wait& wait) const noexcept;
  void hold_kernels() noexcept;
  bool await_kernels(base::Limit& limit) const;
  bool await_decided(base::Limit& limit) const;
  std::unique_lock<std::mutex> lock_world();
  template <class ByKernel>
  auto ready_for_kernels(device::Driver* driver, ByKernel by_kernel) {
    try {
      device::Ledger ledger(driver, kLedger);
      auto end = by_kernel(ledger, driver, *ledger.take<std::uint64_t>());
      if (end) ledger.keep();
      return end;
    } catch (const device::GpuError& reason) {
      throw error(Code::out_of_resources, epoch(), reason.what());
    }
  }

  static constexpr std::size_t kLedger = 4096;  // what kernels count of one end

  static constexpr int kUnbound = -1;
  static constexpr int kPlanned = -2;  // a plan drives it
  static constexpr int kKernels = -3;  // kernels drive it
  static constexpr int kClosed = -4;   // closed here
  std::int64_t bound_ = kUnbound;
  std::atomic<device::Driver*> gpus_{nullptr};
  int gpu_ = 0;                  // the device of its streams
  device::Reached reached_;      // by the driver
  std::uint64_t asked_for_ = 0;  // the epoch that a GPU's stream was seen to wait for
  base::Lasted asked_for_so_long_;
  std::atomic<bool> lost_{false};
  base::Clock::time_point ask_gpu_at_{};
  bool planned_ = false;  // a plan has it, committed or not
  const std::uint64_t* fault_ = nullptr;
  std::atomic<bool> ring_refused_{false};  // of the last epoch

  std::atomic<std::uint64_t> enqueued_{0};
  base::Word connected_word_;
  bool closed_ = false;
  bool let_go_by_peer_ = false;
  bool gone_ = false;                        // the peer is lost
  bool undecided_ = false;                   // the landing is, and the peer will tell
  bool key_closed_ = false;                  // nothing can be written to its end any more
  bool key_closed_here_ = false;             // nor to this one
  base::Clock::duration::rep warnings_ = 0;  // of the wait under way

  mutable std::mutex failure_mutex_;
  std::optional<Error> failure_;
};

}  // namespace sluice::runtime
