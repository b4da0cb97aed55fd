// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/copy_stream.hpp"
#include "runtime/channel.hpp"
#include "runtime/engine.hpp"

namespace sluice::detail {

class ReceiverCore final : public runtime::ChannelEnd {
 public:
  using ChannelEnd::ChannelEnd;
  ~ReceiverCore() override;

  // The verbs, on an end that is `bound_to` the stream.
  Slice wait(Stream stream);
  void release(Stream stream);
  /// Also waits for copies to a GPU.
  std::uint64_t complete(base::Limit& limit) override;
  std::optional<Slice> wait_for(Timeout timeout);
  /// True if `test` would find nothing, and no turn of the engine is needed to know that: for hosts that test again and
  /// again.
  bool surely_awaits() const noexcept {
    const std::uint64_t next = epochs_.by_host() + 1;
    return is_free() && !checked() && connected() && helper() == nullptr && visible_ == nullptr && !failed() &&
           !has_arrived(next) && !base::reached(*word_.word, next);
  }
  Batch wait(Stream stream, std::size_t count);
  void release(Stream stream, std::size_t count);
  Batch wait_some(Timeout timeout);
  /// The slot of `epoch`, which with checks knows its epoch.
  Slice checked_slot(Slice slot, std::uint64_t epoch) const {
    return checked() ? runtime::checked_slot(std::move(slot), epoch) : slot;
  }
  /// @throws the failure, unless that is Code::closed
  bool at_end() const;
  /// The bytes of the put that the last completed wait has seen. @throws Error{Code::misuse} without lengths
  std::size_t bytes() const { return bytes(waits_completed()); }
  std::size_t bytes(std::uint64_t epoch) const;
  // For a host that waits for several ends.
  /// The next epoch is in its slot, or will never be: `wait_for` returns, or throws, at once.
  bool may_take() noexcept;
  /// The peer's put of `epoch` has arrived.
  bool has_landed(std::uint64_t epoch) const noexcept { return landed(epoch); }
  /// The peer has closed, and every epoch that it announced was waited for.
  bool all_taken() const noexcept;
  /// Other ends have the same memory, and puts are parts of it. The caller reports to ThreadSanitizer what arrives.
  void lands_in_parts() noexcept { in_parts_ = true; }
  /// As `release`, in the lane that runs now, whichever stream the end is used on otherwise.
  void release_in(device::Lane lane);
  /// Adds the places where threads sleep for what `may_take` looks at.
  void add_places(std::vector<base::Parking*>& places) const;
  /// Returns all that kernels need to wait and release; none if they cannot. They raise `fault` on misuse. Once
  /// connected.
  std::optional<kernel::In> by_kernel(device::Ledger& ledger, device::Driver* driver, std::uint64_t& fault);
  DeviceReceiver on_device(Stream stream) { return DeviceReceiver(hand_to_kernels(*this, stream)); }
  /// From now on kernels wait and release. With the registry's mutex.
  void let_kernels_drive(const kernel::In& in);

  /// Takes the number of the next release. @throws Error{Code::misuse} without a wait
  std::uint64_t begin_release() {
    const std::uint64_t epoch = releases_.by_host() + 1;
    if (epoch > this->epoch()) refuse_release(epoch);
    releases_.enqueue(epoch);
    return epoch;
  }
  std::uint64_t released() const noexcept { return releases_.last(); }

  // On the lane.
  /// Waits until the bytes of `epoch` are in its slot.
  void land(device::Lane lane, std::uint64_t epoch) {
    fail_if_stopped(lane);
    await_connected(lane, epoch);
    if (!base::trace::on()) [[likely]]
      return await_and_take(lane, epoch);
    device::trace_slice(lane, "wait", traced, epoch, slot_bytes, base::trace::Arrow::ends,
                        [this, lane, epoch] { await_and_take(lane, epoch); });
  }
  void give_back(device::Lane lane, std::uint64_t epoch) {
    fail_if_stopped(lane);
    await_connected(lane, epoch);
    report_failure(lane, false);
    if (lane.host != nullptr && slot_bytes >= kLongCopy && slot_bytes <= kLongestCopy && depth() < kDeep &&
        goes_with_next_put(lane, epoch))
      return;
    if (!base::trace::on()) [[likely]]
      return enqueue(lane, epoch, {});
    device::trace_slice(lane, "release", traced, epoch, 0, base::trace::Arrow::none,
                        [this, lane, epoch] { enqueue(lane, epoch, {}); });
  }
  void land_all(device::Lane lane, std::uint64_t first, std::uint64_t last);
  void give_back_all(device::Lane lane, std::uint64_t first, std::uint64_t last);
  // After the driver refused part of the last wait, or release: it completes once the stream has done the rest.
  void wait_refused(Stream stream) noexcept { waits_refused(stream, 1); }
  void waits_refused(Stream stream, std::uint64_t count) noexcept;
  void release_refused(Stream stream) noexcept { firing_refused(stream, released()); }

  void assist(std::uint64_t epoch) noexcept override {
    if (connected() && landing_ != nullptr && !lands_in_target()) landing_->help(epoch);
  }
  /// Time of a GPU's stream counts as time of its wait for an epoch from when `begun` is at least that epoch. Before
  /// the first use.
  void wait_from_when(const std::atomic<std::uint64_t>& begun) noexcept { begun_ = &begun; }
  bool passed() const noexcept override;
  void refuse_enqueued() override;
  std::string state() const override;
  base::EndCounts counts() const noexcept override { return {epoch(), waits_completed(), released(), depth()}; }

 private:
  [[noreturn, gnu::cold]] void refuse_release(std::uint64_t epoch) const;
  /// On a host stream: the credit leaves between the copy and the signal of a put that stands behind it already, so
  /// that their line travels once.
  bool goes_with_next_put(device::Lane lane, std::uint64_t epoch);
  std::uint64_t waits_for() const noexcept override;
  std::pair<base::Lack, std::uint64_t> lacks(std::uint64_t epoch) const noexcept override;
  void reach_own(device::Driver& driver) override;
  /// Copies landed epochs that a GPU's stream waits for to their slots.
  backends::AfterTurn poll() override;

  [[gnu::always_inline]] void await_and_take(device::Lane lane, std::uint64_t epoch) {
    if (lane.gpu != nullptr && visible_ != nullptr) return await_copied(lane, epoch);
    if (epoch > signal_seen_ && !has_arrived(epoch) && !look_for_signal(epoch)) await_signal(lane, epoch);
    take(epoch);
    if (lane.gpu == nullptr) tell_of_arrival(epoch);
    report_failure(lane);
    count_wait(lane);
  }
  /// For bytes that the engine copies to where a GPU's stream sees them.
  void await_copied(device::Lane lane, std::uint64_t epoch);
  void count_wait(device::Lane lane) {
    if (lane.gpu != nullptr) return lane.gpu->write(waited_.word, ++given_waits_);
    count_waits(1);
  }
  void await_and_take_all(device::Lane lane, std::uint64_t first, std::uint64_t last);
  void count_waits(std::uint64_t count) noexcept {
    std::atomic<std::uint64_t>& waited = waited_.word.value;
    waited.store(waited.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }
  /// The last epoch that a host finds in its slot, once it has taken it from where it landed; or a poison.
  std::uint64_t last_here();
  /// Waits for an epoch by a host form. False: not in time, or never.
  bool await_by_host(std::uint64_t epoch, Timeout timeout);
  /// Counts waits by a host form for epochs that have arrived.
  void take_by_host(std::uint64_t first, std::uint64_t last);
  void request_copies(std::uint64_t last);
  void copy_to_slot(std::uint64_t epoch);
  /// No copy for a GPU's stream is under way.
  bool all_copied() const noexcept {
    return copied_ == nullptr || base::reached(copied_.load()->word, started_.load());
  }
  /// Takes the numbers of the next releases, and returns the last. @throws Error{Code::misuse} without so many waits
  std::uint64_t begin_releases(std::uint64_t count);
  /// Loads the words: the last epoch that has landed, on all rails; or a poison. Once connected.
  std::uint64_t last_landed() const noexcept {
    std::uint64_t value = word_.word->value.load(std::memory_order_acquire);
    for (const auto& word : more_words_) value = std::min(value, word.word->value.load(std::memory_order_acquire));
    return value;
  }
  /// True if `epoch`, and so those before it, have landed.
  bool look_for_signal(std::uint64_t epoch) noexcept {
    const std::uint64_t value = last_landed();
    if (value < base::kPoison) signal_seen_ = value;
    return value < base::kPoison && value >= epoch;
  }
  [[gnu::noinline]] void await_signal(device::Lane lane, std::uint64_t epoch);
  bool spin_for_epoch(std::uint64_t epoch);
  void pause_for_signal(std::uint64_t epoch) const noexcept;
  /// An end that has failed may have no landing.
  bool lands_around() const noexcept { return !failed() && !lands_in_target(); }
  bool has_arrived(std::uint64_t epoch) const noexcept { return lands_around() && landing_->arrived(epoch); }
  bool lands_in_target() const noexcept { return landing_->way() == backends::Landing::Way::direct; }
  void take(std::uint64_t epoch) {
    if (lands_around()) landing_->take({}, *this, epoch);
  }
  /// Tells ThreadSanitizer what has been written to the slot. Bytes that landed elsewhere are there since `take`, which
  /// only this thread has done.
  void tell_of_arrival(std::uint64_t epoch) noexcept {
    if constexpr (base::races::kOn) {
      if (failed() || in_parts_ || slot_bytes == 0 || slots.memory.driver != nullptr) return;
      if (!lands_in_target()) return base::races::arrival_writes(slots.at(epoch), slot_bytes);
      races_.arrives(slots.index(epoch), slots.at(epoch), slot_bytes, word_.word);
    }
  }
  std::uint64_t waits_completed() const noexcept {
    return waited_.word.value.load(std::memory_order_acquire) + refused_waits_ +
           waited_by_host_.load(std::memory_order_acquire);
  }

  bool in_parts_ = false;
  const std::atomic<std::uint64_t>* begun_ = nullptr;
  std::uint64_t signal_seen_ = 0;  // by the stream: another load of the word would take its line from the peer's cache
  base::Progress& waited_ = base::take_progress();  // waits that streams have completed
  std::atomic<std::uint64_t> refused_waits_{0};     // by a GPU's driver
  std::uint64_t given_waits_ = 0;                   // to a GPU's stream
  std::atomic<std::uint64_t> waited_by_host_{0};    // by host forms, which may complete before an enqueued wait

  // Bytes that land outside the slots, and that a GPU's stream waits for, are copied in the engine's turns. An epoch is
  // requested by its wait, started, copied, and then `visible_` to the stream.
  std::atomic<std::uint64_t> requested_{0};
  std::atomic<std::uint64_t> started_{0};
  std::atomic<base::Progress*> copied_{nullptr};   // unlike `visible_` never poisoned
  std::optional<device::CopyStream> copy_stream_;  // copies into a GPU's memory
  Warning warning_;                                // of wait_for
};

}  // namespace sluice::detail
