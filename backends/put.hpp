// SPDX-License-Identifier: Apache-2.0
// The kinds of put that backends share: a MappedPut is done by the stream itself; a RungPut was armed before and is
// fired by one 64-bit write; an EnginePut is a RungPut that the engine posts when its bell was rung.
#pragma once

#include <sluice/device.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "backends/posting.hpp"
#include "backends/transport.hpp"
#include "base/crossing_copy.hpp"
#include "base/races.hpp"
#include "device/copy.hpp"
#include "device/reach.hpp"

namespace sluice::backends {

/// How a put that a stream does copies its bytes.
class StreamCopy {
 public:
  StreamCopy(const Slots& source, const Slots& target)
      : from_(source.memory), to_(target.memory), gpus_(from_.driver != nullptr ? from_.driver : to_.driver),
        slot_bytes_(source.slot_bytes), kernels_reach_(target.slot_bytes == 0) {}

  /// From now on on streams of the current GPU, whose driver was given what is mapped of the peer.
  void reach_from(device::Driver& driver, device::Reached& reached);
  /// False: it was refused, which has failed the watch.
  bool operator()(device::Lane lane, device::Watch& watch, std::byte* to, const std::byte* from,
                  std::size_t bytes) const {
    if (lane.gpu != nullptr && (from_stale_ || to_stale_ || (gpus_ == nullptr && bytes > kernel_max_))) {
      by_host(*lane.gpu, to, from, bytes);
      return true;
    }
    // A store in a queue of many has its line fetched late; a fetch goes past the queue.
    if (bytes < base::CrossingCopy::kLeast && lane.gpu == nullptr) base::fetch_few_to_write(to, bytes);
    return device::copy(lane, watch, to, from, bytes, gpus_, kernel_max_);
  }
  /// True if kernels can copy: those of the driver's GPUs; or those of the host (null), unless GPU memory is involved.
  bool by_kernels(const device::Driver* driver) const noexcept {
    return driver == nullptr ? gpus_ == nullptr : kernels_reach_;
  }
  bool on_host() const noexcept { return gpus_ == nullptr; }  ///< both sides are the processor's memory
  bool on_gpu() const noexcept { return reached_; }           ///< it is used on a GPU's stream
  std::string describe() const;

 private:
  /// Copies by a host function of the stream. Between two places in the processor's memory a copy by CUDA's driver
  /// would make the host wait until the stream reaches it. The driver must not touch stale pages: their bytes go to a
  /// GPU, or come from it, through memory of ours.
  void by_host(device::GpuCall& call, std::byte* to, const std::byte* from, std::size_t bytes) const;

  device::Extent from_;
  device::Extent to_;
  device::Driver* gpus_;  // whose memory it reads or writes; null: the processor's
  std::size_t slot_bytes_;
  bool kernels_reach_;
  std::size_t kernel_max_ = 0;
  bool reached_ = false;
  bool from_stale_ = false;
  bool to_stale_ = false;
  device::Allocation ours_;  // a slot
};

/// Raises `signal` to `epoch`: the last act of every put that a stream does.
inline void raise_signal(device::Lane lane, const Signal& signal, std::uint64_t epoch) {
  device::raise(lane, *signal.word, epoch, *signal.parking);
}
inline void raise_signal(const Signal& signal, std::uint64_t epoch) { raise_signal({}, signal, epoch); }

/// The stream does it all: what it has done is visible at the peer at once.
class StreamPut : public Put {
 public:
  void enqueue(device::Lane lane, std::uint64_t epoch, Range part) override {
    if (!watch_.shut()) move(lane, epoch, part);
    complete(lane, epoch);
  }
  void enqueue_all(device::Lane lane, std::uint64_t first, std::uint64_t last) final {
    if (!watch_.shut()) move_all(lane, first, last);
    complete(lane, last);
  }
  void reach_from(device::Driver& driver) final;
  bool landed(std::uint64_t) final { return true; }
  bool settled() final { return true; }
  Held forget_peer() noexcept final { return {std::exchange(mapped_, {}), std::exchange(reached_, {})}; }
  bool disarmed(bool) final { return true; }

 protected:
  /// `target` and `signal` are the peer's, as mapped here.
  StreamPut(Slots source, Slots target, Signal signal, device::Watch& watch, Mapped mapped,
            std::optional<std::string> why_around, MappedPut* same = nullptr)
      : Put(Fired::by_stream, nullptr, std::move(why_around), same), source_(source), target_(target), signal_(signal),
        watch_(watch), copy_(source, target), mapped_(std::move(mapped)) {}

  void complete(device::Lane lane, std::uint64_t epoch) {
    device::raise(lane, watch_.done, epoch, watch_.done_parking);
  }

  const Slots source_;
  const Slots target_;
  const Signal signal_;
  device::Watch& watch_;
  StreamCopy copy_;

 private:
  /// Copies, then raises the signal. On failure has failed the watch.
  virtual void move(device::Lane lane, std::uint64_t epoch, Range part) = 0;
  /// Copies whole slots, then raises the signal once.
  virtual void move_all(device::Lane lane, std::uint64_t first, std::uint64_t last) = 0;

  Mapped mapped_;
  device::Reached reached_;
};

/// Copies into mapped memory of the peer, then raises its signal.
class MappedPut final : public StreamPut {
 public:
  MappedPut(Slots source, Slots target, Signal signal, device::Watch& watch, Mapped mapped, std::string how,
            std::optional<std::string> why_around = std::nullopt)
      : StreamPut(source, target, signal, watch, std::move(mapped), std::move(why_around), this), how_(std::move(how)) {
    if (copy_.on_host() && source.slot_bytes >= base::CrossingCopy::kLeast)
      crossing_ = std::make_unique<base::CrossingCopy>();
  }

  /// Does the work of its base without a virtual call, which takes a processor longer than a small copy.
  [[gnu::always_inline]] void enqueue(device::Lane lane, std::uint64_t epoch, Range part) override {
    if (!watch_.shut()) MappedPut::move(lane, epoch, part);
    complete(lane, epoch);
  }
  /// On a host stream: the credit that it holds back leaves between the bytes and the signal.
  [[gnu::noinline]] void enqueue_and_let_go(device::Lane lane, std::uint64_t epoch, Range part) {
    if (!watch_.shut()) move_and<true>(lane, epoch, part);
    complete(lane, epoch);
  }
  std::optional<ByKernel> by_kernel(device::Driver* driver) override;
  std::string describe() const override;
  /// No GPU's driver takes part in a put from the host.
  bool by_host() const noexcept { return copy_.on_host(); }

 private:
  /// False: it was refused, which has failed the watch.
  [[gnu::always_inline]] bool copy(device::Lane lane, std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes < base::CrossingCopy::kLeast || crossing_ == nullptr || lane.gpu != nullptr)
      return copy_(lane, watch_, to, from, bytes);
    (*crossing_)(to, from, bytes);
    return true;
  }
  [[gnu::always_inline]] void move(device::Lane lane, std::uint64_t epoch, Range part) override {
    move_and<false>(lane, epoch, part);
  }
  template <bool kLetsGo>
  [[gnu::always_inline]] void move_and(device::Lane lane, std::uint64_t epoch, Range part) {
    if (part.bytes != 0) {
      if (!copy(lane, target_.at(epoch) + part.offset, source_.at(epoch) + part.offset, part.bytes)) return;
      if constexpr (base::races::kOn) {
        if (lane.gpu == nullptr) base::races::put_wrote(signal_.word);
      }
    }
    if constexpr (kLetsGo) lane.host->let_go();
    raise_signal(lane, signal_, epoch);
    if (part.bytes >= kLeastFetched && part.bytes <= kMostFetched) fetch_next(lane, epoch + 1, part);
  }
  /// The peer has read the lines of the next slot. Fetched while it reads this one, they need not be waited for then.
  [[gnu::noinline]] void fetch_next(device::Lane lane, std::uint64_t epoch, Range part);
  void move_all(device::Lane lane, std::uint64_t first, std::uint64_t last) override;

  // The look for the credit costs a line, more than the fetch of a short slot saves. The fetch of a long one takes as
  // long as it saves.
  static constexpr std::size_t kLeastFetched = 2048;
  static constexpr std::size_t kMostFetched = 8192;

  std::string how_;
  std::unique_ptr<base::CrossingCopy> crossing_;  // null: its copies are short, or are a GPU's
};

/// When the puts of a bell have to leave. Credits may leave behind the next put, which a peer waits for.
enum class Haste : std::uint8_t { now, soon };

struct BellEntry;

/// Must be awake when a bell was rung.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void heard(BellEntry& bell) noexcept = 0;
};

/// The entry of a bell in its listener's list of those that were rung. The listener owns it, and never frees it: a ring
/// still uses it when its put may be over, and the bell gone. Then the listener looks at a bell that was not rung.
struct BellEntry {
  BellEntry(Listener& who, Haste how) noexcept : listener(who), haste(how) {}

  Listener& listener;
  std::atomic<Haste> haste;
  std::atomic<bool> listed{false};
  BellEntry* next = nullptr;  ///< in the list
};

/// One 64-bit word that fires puts: a count of rings, which its listener looks at. A NIC's own is a class of its own.
class Doorbell {
  base::Progress& progress_ = base::take_progress();

 public:
  Doorbell() : word(progress_.word) {}
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;
  virtual ~Doorbell() { base::give_back(progress_); }

  /// In the lane's order: one ring more.
  void ring(device::Lane lane) { ring_often(lane, 1); }
  /// So many rings more, at once.
  virtual void ring_often(device::Lane lane, std::uint64_t times);
  /// Rings that the stream has executed.
  virtual std::uint64_t rung() const noexcept { return word.value.load(std::memory_order_acquire); }
  /// From now on streams of the driver's GPUs ring it.
  virtual void reach_from(device::Driver& driver) {
    device::reach_for_ever(driver, base::page_of(word), base::Progress::kPage);
  }
  /// The NIC's counter, to which kernels store 1 when they ring, before they store the count to the word. Null: they
  /// store to the word alone.
  virtual std::uint64_t* counter_for_kernels() const noexcept { return nullptr; }
  /// From now on kernels ring it. It is not known how often they will, so the engine polls it for good.
  virtual void let_kernels_ring() noexcept { rings.store(std::numeric_limits<std::uint64_t>::max()); }
  /// A GPU's stream will ring it, and has not done so yet.
  virtual bool awaited() const noexcept {
    return word.value.load(std::memory_order_relaxed) < rings.load(std::memory_order_relaxed);
  }
  /// Rings list `entry` and wake its listener from now on; null: no listener. Nothing is outstanding.
  void listen(BellEntry* entry) noexcept { entry_ = entry; }
  BellEntry* entry() const noexcept { return entry_; }

  base::Word& word;
  std::atomic<std::uint64_t> rings{0};  // one stream rings it; a GPU's will have rung it so often

 private:
  BellEntry* entry_ = nullptr;
};

/// Fired by one ring of its bell, so that a plan can fire many by one ring of a bell that they share.
class RungPut : public Put {
 public:
  /// Without bytes in a slot it only raises a word. `same`: this put, if the engine posts it.
  RungPut(Fired by, device::Watch& watch, std::shared_ptr<Doorbell> bell, std::size_t slot_bytes,
          Posting* same = nullptr)
      : Put(by, this), posting(same), bell_(std::move(bell)), watch_(watch), whole_{0, slot_bytes} {}

  /// This put, if the engine posts it; else null.
  Posting* const posting;

  void enqueue(device::Lane lane, std::uint64_t epoch, Range part) final;
  /// Each epoch is a put of its own, but the bell wakes its listener once.
  void enqueue_all(device::Lane lane, std::uint64_t first, std::uint64_t last) final;
  /// From now on a GPU's stream comes to what is enqueued long after the host.
  void reach_from(device::Driver& driver) override;
  std::optional<ByKernel> by_kernel(device::Driver* driver) override;
  Held forget_peer() noexcept override { return {}; }  // what is registered with a network is the peer's own affair

  /// Before the lane comes to the epoch: may be armed already now. At most `most_armed` are, in order. Returns whether
  /// it is.
  virtual bool announce(std::uint64_t epoch, Range part) = 0;
  /// On the lane: makes `epoch` ready to be fired by ring number `threshold(epoch)`. Epochs come in order. False: the
  /// watch is shut, and nothing is to be fired.
  virtual bool arm(std::uint64_t epoch, Range part) = 0;
  /// At most so many epochs that have not completed may be armed.
  virtual std::uint64_t most_armed() const noexcept = 0;
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  /// The lane (for a GPU's, the host) enqueues no epoch while more than so many have not completed.
  std::uint64_t most_enqueued() const noexcept;

  /// A bell that puts of the same `bell_kind` may share.
  virtual std::shared_ptr<Doorbell> new_bell() = 0;
  virtual const void* bell_kind() const noexcept = 0;

  /// From now on kernels ring its bell for each epoch that they count in `epochs`, which moves the whole slot.
  void let_kernels_ring(const kernel::Count& epochs);
  /// In the engine's turn: what a GPU's stream or kernels may ring for next is announced. Returns `words` or `work` if
  /// there is more, which cannot be yet.
  AfterTurn arm_ahead();
  /// A GPU's stream has executed all that its driver accepted: rings that are still missing will never happen.
  void forget_refused_rings() noexcept;

  /// From the next epoch on, rings of `bell` fire this put. Nothing is outstanding.
  void share(std::shared_ptr<Doorbell> bell, std::uint64_t epochs_so_far) {
    first_ring_ = bell->rings.load();
    first_epoch_ = epochs_so_far;
    bell_ = std::move(bell);
    shared_ = true;
  }

  /// Others may ring its bell too.
  bool shared() const noexcept { return shared_; }
  Doorbell& bell() const noexcept { return *bell_; }
  /// The ring that fires `epoch`, and the epoch that ring number `ring` fires.
  std::uint64_t threshold(std::uint64_t epoch) const noexcept { return epoch - first_epoch_ + first_ring_; }
  std::uint64_t epoch_of(std::uint64_t ring) const noexcept { return ring - first_ring_ + first_epoch_; }

 protected:
  device::Watch& watch() noexcept { return watch_; }
  bool moves_bytes() const noexcept { return whole_.bytes != 0; }
  /// The last epoch that a GPU has reached without a ring (a kernel that was refused), or with a ring for which nothing
  /// is armed any more, since the watch is shut. Epochs up to it move nothing, unless they were armed.
  std::uint64_t given_up() const noexcept;
  /// The part of an epoch that is enqueued and has not completed, as far as parts are kept.
  Range part_of(std::uint64_t epoch) const noexcept { return parts_.empty() ? Range{} : parts_[epoch % parts_.size()]; }
  void keep_part(std::uint64_t epoch, Range part) noexcept {
    // Once the end has failed no credit holds puts back, and what is under way is still read: it stays as it is.
    if (!watch_.failed() && !parts_.empty()) parts_[epoch % parts_.size()] = part;
  }
  /// Nothing is outstanding. Without bytes no part is kept.
  void keep_parts_of(std::size_t epochs) {
    if (!moves_bytes() || epochs <= parts_.size()) return;
    parts_of_host_.resize(epochs);
    parts_ = parts_of_host_;
  }

  std::shared_ptr<Doorbell> bell_;
  std::span<Range> parts_;        // written before the ring, read after it
  bool armed_by_engine_ = false;  // a GPU's stream rings, or kernels do: nothing is armed on the lane

 private:
  std::uint64_t first_ring_ = 0;
  std::uint64_t first_epoch_ = 0;
  bool shared_ = false;
  device::Watch& watch_;
  const Range whole_;
  std::vector<Range> parts_of_host_;
  // The last epoch that may be rung for without asking the engine: all that a GPU's stream was given, or any.
  std::atomic<std::uint64_t> may_be_rung_{0};
  std::uint64_t ahead_ = 0;                // the last epoch that was announced for it, or enqueued before
  const kernel::Count* epochs_ = nullptr;  // that kernels ring for
};

/// Posted by the engine when its bell was rung, on each of its rails.
class EnginePut : public RungPut, public Posting {
 public:
  /// `depth` is the target's: no more epochs are under way.
  EnginePut(device::Watch& watch, int depth, std::size_t slot_bytes, std::size_t rails = 1);

  bool announce(std::uint64_t, Range) final { return false; }
  bool disarmed(bool) final { return true; }
  bool arm(std::uint64_t epoch, Range part) final {
    keep_part(epoch, part);
    return true;
  }
  std::uint64_t most_armed() const noexcept final { return kUnlimited; }
  bool awaited() const noexcept final { return bell().awaited(); }
  std::optional<ByKernel> by_kernel(device::Driver* driver) final;
  std::shared_ptr<Doorbell> new_bell() final { return std::make_shared<Doorbell>(); }
  const void* bell_kind() const noexcept final;

  /// Starts moving this rail's share of `part` of `epoch`. False: busy, to be called again next turn. Ends with `over`,
  /// now or in `poll`.
  virtual bool post(std::size_t rail, std::uint64_t epoch, Range part) = 0;

 private:
  bool next_is_long() const noexcept final {
    constexpr std::size_t kLong = 16 * 1024;
    return pending() != 0 && part_of(posted() + 1).bytes > kLong;
  }

  std::uint64_t rung() const noexcept final { return epoch_of(bell().word.value.load(std::memory_order_acquire)); }
  bool post_share(std::size_t rail, std::uint64_t epoch) final { return post(rail, epoch, part_of(epoch)); }

  device::Allocation parts_of_kernels_;
  device::Reached parts_reached_;
};

}  // namespace sluice::backends
