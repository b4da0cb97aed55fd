// SPDX-License-Identifier: Apache-2.0
// The common part of both ends of a channel.
#pragma once

#include <sluice/channel.hpp>
#include <sluice/device.hpp>

#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/put.hpp"
#include "base/limit.hpp"
#include "base/races.hpp"
#include "device/ledger.hpp"
#include "device/retire.hpp"
#include "device/traced.hpp"
#include "runtime/checks.hpp"
#include "runtime/closing.hpp"
#include "runtime/end_info.hpp"
#include "runtime/engine.hpp"
#include "runtime/epochs.hpp"
#include "runtime/failure.hpp"
#include "runtime/fate.hpp"
#include "runtime/gpu_use.hpp"
#include "runtime/lengths.hpp"
#include "runtime/services.hpp"

namespace sluice::runtime {

/// The word as kernels take it.
inline std::uint64_t* as_kernels_see(base::Word& word) noexcept {
  return reinterpret_cast<std::uint64_t*>(&word.value);
}

/// The peer's end, as the peer announced it.
struct RemoteEnd {
  std::uint64_t id = 0;
  std::uint64_t slot_bytes = 0;
  int depth = 0;
  std::string contents;
  backends::Key key;
  std::optional<backends::Key> lengths;                 ///< a receiver that wants them
  std::optional<Final> final;                           ///< closed already
  std::optional<std::pair<Code, std::string>> failure;  ///< failed already
};

/// One end: its words, the put that it fires (a sender's put, a receiver's credit), and the landing of the peer's puts.
/// The hot path reads and writes only what the verbs own; everything else is guarded by the registry's mutex.
class ChannelEnd : public EndInfo,
                   public device::Watch,
                   public device::StreamUser,
                   protected Engine::Pollable,
                   public std::enable_shared_from_this<ChannelEnd> {
  const std::shared_ptr<const Services> services_;  // first: the transports outlive what they made

 public:
  ChannelEnd(std::shared_ptr<const Services> services, Opening what);
  /// `word`: the one that peers will raise. It takes no word of the registry, whose mutex callers may hold.
  ChannelEnd(std::shared_ptr<const Services> services, Opening what, const backends::Signal& word);
  ~ChannelEnd() override;

  // Checks (SLUICE_CHECK). The verbs' fast path is never taken with them: see `bind_slowly`.
  /// A call of the program on an end, which the checks see; without them nothing.
  class Use {
   public:
    /// For calls other than verbs. `from`: the return address of the public function.
    /// @throws Error{Code::misuse} if another thread uses the end, or its memory is freed
    Use(ChannelEnd& end, Verb verb, const void* from) : end_(end.checked() ? &end : nullptr), verb_(verb) {
      if (end_ != nullptr) end_->begin_use(verb, from);
    }
    /// For verbs that are not `bound_to` the stream: binds.
    [[gnu::cold]] Use(ChannelEnd& end, Stream stream, Verb verb, const void* from);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (end_ != nullptr) end_->end_use(verb_, runs_later_);
    }

   private:
    ChannelEnd* end_;
    Verb verb_;
    bool runs_later_ = false;  // what the call enqueues
  };
  /// Called before the end is opened. @throws Error{Code::misuse} if its slots overlap those of another receiver
  void begin_checks(const void* from);
  bool checked() const noexcept { return checks_ != nullptr; }
  /// Reports a verb whose turn on its stream comes before it may run.
  void runs_too_early(device::Lane lane, const RunOrder::TooEarly& what) noexcept;
  /// Fails the end, and returns true, if memory of its slots was freed. `found_by`: null: the closing.
  bool memory_is_gone(const Call* found_by) noexcept;
  /// `data` is called, from `from`, of the slot of the last epoch that is `marked` modulo the number of marks.
  void slot_used(std::uint64_t marked, const void* from) noexcept;
  Checks& checks() noexcept { return *checks_; }

  // For the registry, with its mutex: opening.
  /// Called once the link to the peer is ready. Prepares where the peer's puts land, and returns the key to announce.
  /// `more`: the signals of rails beyond the first.
  virtual backends::Key open_landing(backends::Link& link, std::vector<backends::Signal> more);
  /// After `open_landing`, for a receiver with ChannelOptions::lengths. Returns the key to announce with the other.
  backends::Key land_lengths(backends::Link& link, backends::Signal signal);
  /// The slots that the peer's puts land in; none: they only raise a word.
  backends::Slots target() const { return opening.key.role == Role::receiver ? slots : backends::Slots{}; }
  /// Connects with the peer's end. From here on the verbs work, unless the landing is undecided.
  void connect(backends::Link& link, RemoteEnd remote);
  /// The peer has reported how it reaches the target; from here on the verbs work.
  void decide(const std::string& obstacle);

  // For the registry, with its mutex: failing.
  void peer_lost(Code code, const std::string& what) noexcept;
  /// The owner of a window has no part in what its peers do.
  void peer_failed(Code code, const std::string& what) noexcept {
    if (opening.key.role != Role::window) record(code, what, false);
  }
  /// This rank ends with the channel open: the peer loses it.
  void leave(const std::string& why) noexcept { record(Code::peer_lost, why, true); }
  /// An exception destroys this end, or one whose work this end holds up. The peer loses it, and a host stream that
  /// meets the failure stops: what stands behind is for bytes that never came.
  void leave_destroyed(const std::string& why) noexcept;
  void leave_in_front(const std::string& why) noexcept;
  /// Not empty: `leave_destroyed` was called.
  const std::string& leaves_because() const noexcept { return leaves_because_; }
  void poison_again() const noexcept { failure_.poison(); }
  void forget_refused_rings() noexcept {
    if (gpu_use() == nullptr || rung_ == nullptr || !gpu_use()->rings_were_refused()) return;
    services_->engine.forget_refused_rings(*rung_);
    if (lengths() != nullptr) lengths()->forget_refused_rings(services_->engine);
  }
  /// A GPU's stream cannot time out, so the engine checks its waits now and then.
  void check_streams(base::Clock::time_point now) noexcept;

  // For the registry, with its mutex: closing. See closing.hpp for the first six.
  virtual bool passed() const noexcept = 0;
  bool written() const noexcept { return fired(put_epochs().begun()); }
  /// A sender's puts that the peer waits for; of a receiver's credits those that the sender still needs.
  bool has_written(const Final& final) const noexcept {
    return failed() || done.value.load(std::memory_order_acquire) + (sends() ? 0 : depth()) >= final.wanted;
  }
  bool has_arrived(const Final& final) const noexcept { return sends() || failed() || landed(final.wanted); }
  bool settled() const { return put_ == nullptr || put_->settled(); }
  bool disarmed(bool key_closed) const { return put_ == nullptr || put_->disarmed(key_closed); }
  /// Nothing of a target's accesses is still to arrive when they have completed.
  Final final() const noexcept { return of_window() ? Final{} : Final{epoch(), put_epochs().last()}; }
  void peer_closed(const Final& final);
  /// True if work is enqueued that will never complete, because the peer has closed.
  bool beyond_final() const noexcept {
    return closing.theirs && !of_window() && !failed() && epoch() > last_possible(*closing.theirs);
  }
  /// Fails the end for such work, once all work before it has completed.
  virtual void refuse_enqueued() = 0;
  /// True if the peer closed and then died, and some of its writes have not arrived yet.
  bool behind() { return closing.theirs && !failed() && !complete_without(*closing.theirs); }
  /// Like Watch::set_shut, for kernels too: a put that has not begun when this returns touches nothing of the peer.
  void shut_end() noexcept;
  /// The order of the puts, as in backends::Put; null also if this end is not connected.
  const void* puts_in_order() const noexcept { return connected() && put_ != nullptr ? put_->in_order() : nullptr; }
  /// Returns the mappings of the peer's memory, which the caller frees.
  backends::Held forget_peer() noexcept { return put_ == nullptr ? backends::Held() : put_->forget_peer(); }
  /// Closes the key of the target. Returns whether the peer must be notified.
  bool close_key() { return landing_ != nullptr && landing_->close(); }
  /// Frees the landing; its signals rise no more.
  void drop_landing() noexcept {
    stop_polling();
    landing_.reset();
  }

  // Any thread.
  void fail(Code code, const std::string& what) noexcept override { record(code, what, true); }
  /// Fails with the failure of another end, which `check` throws once for both: from now on puts move nothing. False:
  /// it has failed before.
  bool begin_to_fail(const SharedFailure& others) noexcept;
  /// Then: ends the waits of an end that has failed.
  void release_failed(const std::string& what, bool tell_peer) noexcept;
  /// From now on it fails the others with itself. Once, by SharedFate::join.
  void share(std::shared_ptr<SharedFate> fate) noexcept;
  base::Clock::duration waited(const device::Wait& wait, base::Clock::duration so_far, Timeout limit,
                               base::WaitNote& note) noexcept override;
  /// Always true while kernels drive it: the host does not know which of them are still to begin.
  bool may_be_parked() const noexcept override { return gpus() != nullptr && (counted() || !passed()); }
  /// Kernels count its epochs.
  bool counted() const noexcept { return epochs_.counted_by_kernels(); }
  /// How far this end has come, for the peer that waits for it.
  virtual base::EndCounts counts() const noexcept = 0;
  /// Writes a wait of this end into sluice-run's table, and requests the peer's counts. `peer_copies`: of device::Wait.
  void note_wait(base::WaitNote& note, const char* verb, std::uint64_t epoch, bool peer_copies = false) const noexcept;
  /// Notes that closing waits.
  void note_closing(base::WaitNote& note) const noexcept;
  /// Nothing that was enqueued on its GPU will run any more.
  bool gpu_lost() const noexcept { return gpu_use() != nullptr && gpu_use()->lost(); }
  /// The driver of the GPU whose streams it is used on; null: no GPU's.
  device::Driver* gpus() const noexcept { return gpu_use() == nullptr ? nullptr : &gpu_use()->driver(); }

  // For the user's thread.
  /// The last enqueued put of a sender, or wait of a receiver. If kernels count: the last one that began for good.
  std::uint64_t epoch() const noexcept { return epochs_.last(); }
  void check() const {
    if (failed()) failure_.raise();
  }
  bool connected() const noexcept { return connected_word_.value.load(std::memory_order_acquire) == 1; }
  // For an end that is a part of another one, which waits in its place.
  device::Wait wait_for_peer(std::uint64_t epoch) const noexcept {
    return {&connected_word_, 1, &done_parking, epoch, "wait for the peer"};
  }
  /// For receivers with one rail.
  device::Wait wait_for_arrival(std::uint64_t arrives, std::uint64_t epoch) const noexcept {
    return {word_.word, arrives, word_.parking, epoch, "wait for a reply"};
  }
  void wait_connected(std::optional<Timeout> timeout);
  /// `stated`: the limit as the error states it.
  void wait_connected(base::Limit& limit, Timeout stated);
  void close(std::optional<Timeout> timeout);
  bool close_within(base::Limit& limit);
  /// The error of a close that took longer. `stated`: as in `wait_connected`.
  Error not_closed(Timeout stated) const;
  bool closed() const noexcept { return closed_; }
  SharedFailure failure() const { return failure_.get(); }
  /// True for an end that keeps work of `other` from running, on a stream that both are used on: a host stream sleeps
  /// in its wait, or a GPU's stream has work of it. With the registry's mutex.
  bool holds_up(const ChannelEnd& other) const noexcept;
  /// For `holds_up`: it is used on this stream. By its own thread.
  void remember(Stream stream);
  /// Its user has closed it, or begun to.
  bool closed_here() const noexcept { return bound_ == kClosed; }
  /// The stream is the one that the channel was used with last, in this process: a verb may begin.
  bool bound_to(Stream stream) const noexcept { return bound_ == here_with(stream) && bound_to_ == stream.handle(); }
  /// Checks that the stream is of the kind that this channel is used with. Verbs call it by `Use`.
  [[gnu::cold]] void bind_slowly(Stream stream);
  /// Host forms are for channels that are open and not in a committed plan.
  bool is_free() const noexcept { return bound_ > kPlanned; }
  void check_free() {
    if (!is_free()) refuse_bound();
  }
  /// On its thread: verbs of this end were on one host stream alone, this one, and their order needs no check.
  bool is_used_on_alone(Stream stream) const noexcept {
    return !checked() && streams_.size() == 1 && streams_.front() == stream;
  }
  /// Waits of this end last as long as they must. Before its first use.
  void wait_without_limit() noexcept { unlimited_ = true; }
  /// Kernels of the GPU may use the slots until this end is closed, though no verb of it is on a GPU's stream.
  /// @throws device::GpuError; Error{Code::unsupported} if the slots lie in the memory of another GPU
  void lend_slots(device::Driver& driver, int gpu);
  /// While there are any, verbs of this end are refused on streams of GPUs.
  void add_lenders(int more) noexcept { lenders_ += more; }
  std::string describe() const;
  /// See runtime/put_by_stream.hpp.
  bool is_put_by_stream() const;
  virtual std::string state() const = 0;
  /// When a wait for an epoch warns next that it still waits, and its row in the table of waits.
  struct Warning {
    std::uint64_t epoch = 0;
    base::Clock::time_point at{};
    const char* verb = "";
    base::WaitNote note{};
  };
  /// @param verb  of the table of waits
  Warning new_warning(std::uint64_t epoch, const char* verb) const noexcept {
    return {epoch, next_warning(), verb, base::WaitNote(base::Clock::now())};
  }
  /// Notes the wait, and warns, if the time has come.
  void look_at(Warning& warning) const;
  base::Clock::time_point next_look(const Warning& warning) const noexcept {
    return std::min(warning.at, warning.note.next(noted_after()));
  }
  /// Blocks the host until every put, or credit, has completed. Returns the last epoch that has.
  virtual std::uint64_t complete(base::Limit& limit);
  const Services& services() const noexcept { return *services_; }
  const std::shared_ptr<const Services>& own_services() const noexcept { return services_; }

  // For plans. A channel is in one plan at most, from `join_plan` on; a committed plan drives it.
  void join_plan();
  std::size_t place_in_plan = 0;  ///< among its senders, or receivers
  void leave_plan() noexcept { planned_ = false; }
  void check_bindable(Stream stream);
  /// As far as that depends on the stream alone. @throws Error{Code::misuse}, {Code::unsupported}
  void check_kind(Stream stream) const;
  void bind_to_gpu(Stream stream);
  void drive_by_plan() noexcept { bound_ = kPlanned; }
  /// Neither failed nor closed here.
  void check_driven() const {
    check();
    if (bound_ == kClosed) refuse_bound();
  }
  /// Throws if one of the next `count` epochs would be refused. A plan calls this for all its channels before it counts
  /// any epoch.
  void check_next(std::uint64_t count = 1) const {
    if (epoch() + count > limit_.load(std::memory_order_acquire)) refuse(epoch() + count);
  }
  /// Counts the epoch that was checked before. If the peer has closed in between, the engine has to look again.
  void count_for_plan();
  /// The put of this end, if a bell fires it.
  backends::RungPut* rung() const noexcept { return rung_; }
  /// The put of this end, if its length goes with it; else null.
  LengthsPut* lengths() const noexcept { return lengths_.load(std::memory_order_acquire); }

  /// Range that an epoch moves by default: the whole slot for a put, nothing for a credit.
  backends::Range whole_epoch() const noexcept { return {0, sends() ? slot_bytes : 0}; }

  // On the lane, for verbs and plans.
  /// Fails this end if the verb runs on a host stream that has stopped: the verb then moves nothing and waits for
  /// nothing.
  void fail_if_stopped(device::Lane lane) noexcept {
    if (lane.host != nullptr && lane.host->stopped_by() != nullptr) [[unlikely]]
      fail_for(*lane.host);
  }
  /// Reports a failure of this end to the host stream of the verb. Call it before the verb counts as completed: closing
  /// may destroy this end right after that.
  /// @param waits  the verb is one that waits
  void report_failure(device::Lane lane, bool waits = true) const noexcept {
    if (lane.host != nullptr && failed()) [[unlikely]]
      lane.host->met(failure_.get(), waits);
  }
  /// `epoch`: of the verb that cannot begin before.
  void await_connected(device::Lane lane, std::uint64_t epoch) noexcept {
    if (connected_word_.value.load(std::memory_order_acquire) == 0) await_connected_slowly(lane, epoch);
  }
  /// Fires the put or the credit of `epoch`, once connected. Without a peer it completes at once.
  [[gnu::always_inline]] void enqueue(device::Lane lane, std::uint64_t epoch, backends::Range part) {
    if (lane.gpu != nullptr || !connected() || mapped_ == nullptr) [[unlikely]]
      return enqueue_otherwise(lane, epoch, part);
    tell_of_firing(lane, epoch, part);
    mapped_->enqueue(lane, epoch, part);
  }
  [[gnu::noinline]] void enqueue_otherwise(device::Lane lane, std::uint64_t epoch, backends::Range part) {
    if (connected() && put_ != nullptr) {
      const auto kept = services_to_ring(lane);
      if (rung_ != nullptr) await_armable(lane, epoch);
      tell_of_firing(lane, epoch, part);
      put_->enqueue(lane, epoch, part);
    } else {
      device::raise(lane, done, epoch, done_parking);
    }
  }
  /// Like `enqueue` of the whole put, or the credit, of each epoch, but as one if nothing limits how many may be armed.
  void enqueue_all(device::Lane lane, std::uint64_t first, std::uint64_t last);
  /// Tells ThreadSanitizer that the source is read from now on, or that the target may be written.
  void tell_of_firing(device::Lane lane, std::uint64_t epoch, backends::Range part) noexcept {
    if constexpr (base::races::kOn) {
      if (lane.gpu != nullptr) return;
      const std::uint64_t slot = slots.index(epoch);
      if (!sends()) return races_.given(slot);
      if (part.bytes == 0 || shut() || slots.memory.driver != nullptr) return;
      const std::byte* const source = slots.at(epoch) + part.offset;
      if (rung_ != nullptr) return races_.reads(slot, source, part.bytes);
      base::races::put_reads(source, part.bytes);
    }
  }
  /// The host arms what can be armed ahead of the stream. For a GPU's stream the engine does that.
  void announce(std::uint64_t epoch, backends::Range part) {
    if (connected() && rung_ != nullptr && gpu_use() == nullptr) (void)rung_->announce(epoch, part);
  }
  void announce_all(std::uint64_t first, std::uint64_t last) {
    if (!connected() || rung_ == nullptr) return;
    for (std::uint64_t epoch = first; epoch <= last; ++epoch) announce(epoch, whole_epoch());
  }
  void await_armable(device::Lane lane, std::uint64_t epoch) {
    const std::uint64_t most = rung_->most_enqueued();
    if (epoch <= most) return;
    if (lane.gpu != nullptr) return await_room(lane, epoch - most);
    device::wait(lane, {&done, epoch - most, &done_parking, epoch, "wait for room"}, *this, helper());
  }

  // Guarded by the registry's mutex.
  std::uint64_t remote_id = 0;  ///< of the peer's end; 0: not known yet
  bool announced = false;       ///< the opening was sent to the peer
  Closing closing;

 protected:
  static constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  static constexpr int kDeep = 4;  // slots from which on many epochs are under way at a time
  /// A credit lies beside the signal of the next put. If that put copies so many bytes, the peer looks at them
  /// meanwhile.
  static constexpr std::size_t kLongCopy = 4096;
  static constexpr std::size_t kLongestCopy = 8192;  // what a longer copy gains ahead it loses synchronised

  /// The epoch whose word some enqueued work may be waiting for; 0: none.
  virtual std::uint64_t waits_for() const noexcept = 0;
  /// What a wait for `epoch` lacks while the end is connected, and of which epoch.
  virtual std::pair<base::Lack, std::uint64_t> lacks(std::uint64_t epoch) const noexcept = 0;
  /// Gives the driver all of this end that its streams will use, once connected.
  virtual void reach_own(device::Driver& driver) = 0;
  /// Makes the put of this end, which reaches the memory of the peer. Null: it has none. @throws std::exception
  virtual std::unique_ptr<backends::Put> prepare(backends::Link& link, RemoteEnd& remote);
  /// For an end without a peer: its verbs work from now on. With the registry's mutex.
  void work_alone();
  /// For an end without a peer: turns of the engine may bring something from now on, or no more. Not while it waits.
  void find_helper() noexcept;
  /// The end is closed: the engine posts nothing of it any more.
  virtual void stop_posting() noexcept;
  /// Closes ends that are parts of this one, first. False: not within the limit.
  virtual bool close_parts(base::Limit& /*limit*/) { return true; }
  /// No call of the rank throws its failure but those of this end.
  virtual bool quiet() const noexcept { return opening.quiet; }

  /// From now on the engine polls this end, which then raises `visible_`; `from`: the epochs that it has reached.
  void let_engine_poll(device::Driver& driver, std::uint64_t from);
  /// The engine does not touch this end any more. For destructors, and before the landing is freed.
  void stop_polling() noexcept;

  /// The epochs that the put of this end fires: puts of a sender, releases of a receiver.
  Epochs& put_epochs() noexcept { return sends() ? epochs_ : releases_; }
  const Epochs& put_epochs() const noexcept { return sends() ? epochs_ : releases_; }
  /// The last epoch that a channel can reach after its peer has closed.
  std::uint64_t last_possible(const Final& final) const noexcept {
    if (of_window()) return 0;
    return sends() ? final.credited + peer_depth_.load(std::memory_order_relaxed) : final.wanted;
  }
  /// The peer's put of `epoch` has arrived, on all rails.
  bool landed(std::uint64_t epoch) const noexcept;

  /// Takes the numbers of the next `count` epochs, unless one of them is refused. Returns the last.
  [[gnu::always_inline]] std::uint64_t begin(std::uint64_t count = 1) {
    const std::uint64_t epoch = epochs_.by_host() + count;
    // Before the engine takes it for enqueued.
    if (epoch > limit_.load(std::memory_order_acquire)) refuse(epoch);
    epochs_.enqueue(epoch);
    if (epoch > limit_.load(std::memory_order_acquire)) {
      epochs_.withdraw(epoch, count);
      refuse(epoch);
    }
    return epoch;
  }
  /// To hold while a host stream rings: once another thread has completed the put, the program may close the end and
  /// destroy the context, whose engine the ring still uses.
  std::shared_ptr<const Services> services_to_ring(device::Lane lane) const noexcept {
    if (lane.host == nullptr || rung_ == nullptr) return nullptr;
    const base::races::NoOrder counting;
    return services_;
  }
  struct NeverBrief {};
  /// Like device::in_order. Work that a GPU's driver refuses fails the channel; `refused` then makes sure that nothing
  /// waits for it. `is_brief`: of HostStream::Impl::run_now. `kPuts`: the work is a put.
  template <bool kPuts = false, class F, class Refused, class IsBrief = NeverBrief>
  [[gnu::always_inline]] void issue(Stream stream, F work, Refused refused, IsBrief is_brief = {}) {
    if (stream.kind() == Stream::Kind::program_order) [[likely]]
      return work(device::Lane{});
    issue_later<kPuts>(stream, std::move(work), std::move(refused), is_brief);
  }
  template <bool kPuts, class F, class Refused, class IsBrief>
  [[gnu::noinline]] void issue_later(Stream stream, F work, Refused refused, IsBrief is_brief) {
    if (stream.kind() == Stream::Kind::host) {
      auto* const host = static_cast<HostStream::Impl*>(stream.handle());
      if constexpr (!std::is_same_v<IsBrief, NeverBrief>) {
        const auto now = [&] { work(device::Lane{host}); };
        if (!checked() && host->run_now(is_brief, now)) return;
      }
      return give_to_host(host, std::move(work), kPuts);
    }
    try {
      device::on_gpu(device::GpuCall(stream, gpu_use()->gpu()), std::move(work));
    } catch (const device::GpuError& reason) {
      fail(Code::transport, reason.what());
      refused();
    }
  }
  /// Counted in without an order that ThreadSanitizer sees: it would be one behind the last work that has run.
  std::shared_ptr<ChannelEnd> owner_of_work() {
    const base::races::NoOrder counting;
    return shared_from_this();
  }
  template <class F>
  void give_to_host(HostStream::Impl* host, F work, bool puts) {
    if (!checked()) [[likely]]
      return device::on_host(host, std::move(work), puts);
    const Call call = checks_->user.current();
    const std::uint64_t epoch = epoch_of(call.verb);
    const std::uint64_t number = checks_->order.enqueue({call, epoch, host->name()});
    // It owns the end: closing may release the end as soon as the verb has completed.
    auto checked = [self = owner_of_work(), call, epoch, number, work = std::move(work)](device::Lane lane) {
      const auto verb = [self, call, epoch, work](device::Lane runs_on) mutable {
        self->begin_to_run(runs_on, call, epoch);
        work(runs_on);
      };
      self->checks_->order.run(number, lane, verb,
                               [&](const RunOrder::TooEarly& what) { self->runs_too_early(lane, what); });
    };
    try {
      device::on_host(host, std::move(checked));
    } catch (...) {
      checks_->order.withdraw(number);
      throw;
    }
  }
  /// The word of the peer's end that this one raises lies in a line with others. Once connected.
  bool shares_line() const noexcept { return peer_depth_.load(std::memory_order_relaxed) < kDeep; }
  /// True if the put, or credit, of this end is done by stores of the stream alone. False for an end that has failed.
  bool fires_by_stores() const noexcept { return connected() && mapped_ != nullptr && mapped_->by_host() && !shut(); }
  /// Blocks the host: a GPU's stream cannot be given more before.
  void await_room(device::Lane lane, std::uint64_t last_done);

  /// From now on kernels count the epochs of this end in `epochs`, and what its put fires in `fired`, which are the
  /// same for a sender; they raise `fault` when they are used wrongly. With the registry's mutex.
  void let_kernels_count(kernel::Count& epochs, kernel::Count& fired, const std::uint64_t& fault);
  /// Makes kernels on streams of this kind drive this end, and returns what they need for that.
  template <class Core>
  auto hand_to_kernels(Core& core, Stream stream) {
    constexpr std::size_t kLedger = 4096;  // what kernels count of one end
    begin_handing(stream);
    device::Driver* const driver = device::of_gpu(stream) ? device::driver(stream.kind()) : nullptr;
    try {
      device::Ledger ledger(driver, kLedger);
      const auto end = core.by_kernel(ledger, driver, *ledger.take<std::uint64_t>());
      if (!end) throw error(Code::unsupported, epoch(), "no kernel can drive this end: " + describe());
      ledger.keep();
      bound_ = kKernels;
      const auto locked = lock_registry();
      core.let_kernels_drive(*end);
      return *end;
    } catch (const device::GpuError& reason) {
      throw error(Code::out_of_resources, epoch(), reason.what());
    }
  }

  const GpuUse* gpu_use() const noexcept { return gpu_.load(std::memory_order_acquire); }
  GpuUse* gpu_use() noexcept { return gpu_.load(std::memory_order_acquire); }
  /// The epochs up to `last` have completed, or never will.
  bool fired(std::uint64_t last) const noexcept {
    if (const GpuUse* const use = gpu_use()) return use->fired(last, done);
    return base::reached(done, last);
  }
  void firing_refused(Stream stream, std::uint64_t last) noexcept { gpu_use()->firing_refused(stream, done, last); }

  base::Limit limit_of(std::optional<Timeout> timeout) const noexcept {
    return base::Limit(timeout.value_or(services_->limits.wait));
  }
  bool await_landed(std::uint64_t last, base::Limit& limit) const;
  void record(const SharedFailure& failure, const std::string& what, bool tell_peer) noexcept;
  void refuse_verbs() noexcept;
  [[noreturn, gnu::cold]] void not_drained() const;
  /// `cause`: null: it is found by the code and the text.
  void record(Code code, const std::string& what, bool tell_peer, std::shared_ptr<Cause> cause = nullptr) noexcept;

  /// Blocks the host until `ready()`, up to `limit`, and warns now and then that it still waits.
  /// @param verb  of the table of waits
  template <class Place, class Ready>
  bool await_in_host(Place&& parking, Ready ready, base::Limit& limit, const char* verb) const {
    if (ready()) return true;
    Warning warning = new_warning(epoch(), verb);
    return await_in_host(parking, ready, limit, warning);
  }
  /// `warning` outlives the call: for a caller that waits for one epoch in several calls.
  /// `parking`: a Parking, or a span of several.
  template <class Place, class Ready>
  bool await_in_host(Place&& parking, Ready ready, base::Limit& limit, Warning& warning) const {
    const base::trace::Span slice("host waits", traced, epoch());
    // At first takes the engine's turns, as a waiting stream does.
    if (helper() != nullptr && device::help_until(*helper(), ready, limit.next())) return true;
    while (!base::wait_until(parking, ready, std::min(limit.next(), next_look(warning)))) {
      look_at(warning);
      if (limit.over()) return look(ready);  // it may have arrived while the process stood still
    }
    return true;
  }
  /// Checks once. If not ready, takes a turn of the engine and checks again.
  template <class Ready>
  bool look(Ready ready) const {
    if (ready()) return true;
    if (helper() != nullptr) helper()->look();
    return helper() != nullptr && ready();
  }
  /// Helper for waits. Null before the end is connected: a failure may let its work run even then.
  device::Helper* helper() const noexcept { return connected() ? helper_ : nullptr; }
  /// How long a wait has lasted when it is noted first.
  base::Clock::duration noted_after() const noexcept;

  /// For verbs of several epochs. @throws Error{Code::bad_argument} if they are more than this end has slots
  void check_count(std::size_t count) const {
    if (count > depth()) refuse_count(count);
  }
  [[noreturn, gnu::cold]] void refuse_count(std::size_t count) const;
  /// Throws why a call is refused whose epoch is beyond the limit.
  [[noreturn, gnu::cold]] void refuse(std::uint64_t epoch) const;
  void lower_limit(std::uint64_t limit) noexcept;

  /// Epochs above this are refused: 0 once failed, the last that the peer allows once it has closed.
  std::atomic<std::uint64_t> limit_{kNoLimit};
  Epochs epochs_;                             // puts of a sender, waits of a receiver
  Epochs releases_;                           // of a receiver
  std::atomic<std::uint64_t> peer_depth_{0};  // 0: not connected yet

  std::unique_ptr<backends::Put> put_;
  backends::RungPut* rung_ = nullptr;          // `put_`, if it is one; set before `connected`
  backends::MappedPut* mapped_ = nullptr;      // the same
  std::atomic<LengthsPut*> lengths_{nullptr};  // the same
  std::unique_ptr<backends::Landing> landing_;
  backends::Signal word_;                     // the one that the peer raises
  std::vector<backends::Signal> more_words_;  // of a striped channel, which rise with it
  bool stale_ = false;                        // the GPU's driver has other pages at the addresses of the slots
  // Raised in the engine's turns to a sender's completed puts, or to the epochs that are in a receiver's slots: GPU
  // streams cannot wait for the word itself, which failures must not poison, or which rises too early. Null: not used.
  std::atomic<base::Progress*> visible_{nullptr};
  EndFailure failure_;
  std::shared_ptr<SharedFate> fate_owner_;
  std::atomic<SharedFate*> fate_{nullptr};  // `fate_owner_`
  [[no_unique_address]] base::races::Slots races_;
  bool posts_ = false;  // the engine posts what it puts, without a RungPut

 private:
  /// The value of `bound_` in a channel that this process uses with streams of this kind. So one comparison finds
  /// another kind, a plan, and a fork.
  static std::int64_t here_with(Stream stream) noexcept {
    return base::process_if_known() + static_cast<std::int64_t>(stream.kind());
  }
  void begin_use(Verb verb, const void* from);
  void end_use(Verb verb, bool runs_later) noexcept;
  void begin_to_run(device::Lane lane, const Call& call, std::uint64_t epoch) noexcept;
  std::uint64_t epoch_of(Verb verb) const noexcept;
  /// Fails the end with a mistake of the program's in this epoch.
  void misused(std::uint64_t epoch, const std::string& what) noexcept;
  void reach_from(device::Driver& driver, int gpu);
  void reach_named_stream();
  [[noreturn, gnu::cold]] void refuse_bound() const;
  void begin_working();
  /// Called if the peer has died after it had closed. Returns whether all of its writes have arrived.
  bool complete_without(const Final& final);
  [[gnu::cold]] void await_connected_slowly(device::Lane lane, std::uint64_t epoch) noexcept;
  [[gnu::cold]] void fail_for(const HostStream::Impl& stream) noexcept;
  base::Clock::time_point next_warning() const noexcept;
  void warn(Warning& warning) const;
  base::WaitRecord record_of_wait(const char* verb) const noexcept;
  void check_gpu(base::Clock::time_point now) noexcept;
  void hold_kernels() noexcept { put_epochs().hold_kernels(failed()); }
  bool await_counts(bool (Epochs::*known)() const noexcept, base::Limit& limit) const;
  bool await_done(std::uint64_t last, base::Limit& limit) const;
  void begin_handing(Stream stream);
  void warn_of_stale_slots(const std::string& why) const;
  void check_on_gpu(device::Driver& driver, int gpu) const;
  std::unique_lock<std::mutex> lock_registry();

  static constexpr int kUnbound = -1;
  static constexpr int kPlanned = -2;  // a plan drives it
  static constexpr int kKernels = -3;  // kernels drive it
  static constexpr int kClosed = -4;   // closed here
  std::int64_t bound_ = kUnbound;
  // The handle of the last stream, if it is no GPU's: of those the driver tells at each use what they do. Nor is it
  // with checks, which look at each use.
  const void* bound_to_ = nullptr;
  std::string leaves_because_;   // empty: it closes as any end does
  std::vector<Stream> streams_;  // that it was used on; written by its thread, with the registry's mutex
  bool planned_ = false;         // in a plan, committed or not
  base::Word connected_word_;
  bool undecided_ = false;  // the landing is; the peer will send how it reaches the target
  bool closed_ = false;
  bool unlimited_ = false;
  bool polled_ = false;               // by the engine
  device::Helper* helper_ = nullptr;  // of an end with a peer: set before `connected`

  std::unique_ptr<Checks> checks_;  // null without SLUICE_CHECK
  std::unique_ptr<GpuUse> gpu_owner_;
  std::atomic<GpuUse*> gpu_{nullptr};  // `gpu_owner_`, once the driver was given everything
  device::Reached lent_;               // by `lend_slots`
  const device::Driver* lent_to_ = nullptr;
  std::atomic<int> lenders_{0};
  const std::uint64_t* fault_ = nullptr;  // raised by kernels
  std::uint64_t seen_epoch_ = 0;          // the epoch that the last check saw a GPU's stream wait for
  base::Lasted seen_for_;                 // how long checks have seen it
  base::WaitNote seen_note_;
  base::Clock::duration::rep warnings_ = 0;  // of the wait under way
};

/// All begin to close before one is waited for. Returns the first that has not closed within the limit; null: all have.
ChannelEnd* close_all(std::span<ChannelEnd* const> ends, base::Limit& limit);

}  // namespace sluice::runtime
