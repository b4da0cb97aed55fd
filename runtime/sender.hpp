// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "runtime/channel.hpp"
#include "runtime/engine.hpp"

namespace sluice::detail {

/// A put of a host that waits longer for its credit is a mistake of the program.
struct CreditLimit {
  Timeout within;                                           ///< from when the stream reaches the put
  Tag tag = 0;                                              ///< of the error
  std::function<std::string(std::uint64_t epoch)> mistake;  ///< text of the error
};

class SenderCore final : public runtime::ChannelEnd {
 public:
  using ChannelEnd::ChannelEnd;
  ~SenderCore() override { stop_polling(); }

  // The verbs, on an end that is `bound_to` the stream.
  Slice acquire(Stream stream);
  [[gnu::always_inline]] inline void put(Stream stream, backends::Range part);
  /// A put on the lane of another end, of which this one is a part, and which reports failures in its place.
  void put_on(device::Lane lane) {
    const std::uint64_t epoch = begin();
    fail_if_stopped(lane);
    await_credit(lane, epoch);
    enqueue(lane, epoch, whole());
  }
  /// The source slot of the next such put, on the lane of a GPU's stream. Blocks the host until the stream has put what
  /// is there.
  std::byte* free_slot(device::Lane lane) {
    const std::uint64_t next = epoch() + 1;
    if (next > depth() && !base::reached(done, next - depth())) await_room(lane, next - depth());
    return slots.at(next);
  }
  Batch acquire(Stream stream, std::size_t count);
  void put_all(Stream stream, std::size_t count);
  /// Later work on `stream` runs only when every enqueued put has been sent. Unlike an acquire it needs no next put,
  /// which a peer that has closed would refuse. It binds the end to the stream.
  void await_sent(Stream stream);
  /// True if the next put is refused: this end has failed, or the peer has closed and will not credit it.
  bool refuses_next() const noexcept { return epoch() + 1 > limit_.load(std::memory_order_acquire); }
  /// With checks, an acquire that need not wait has its place in the order of verbs, too.
  void order_acquire(Stream stream, std::size_t count = 1);
  void drain(std::optional<Timeout> timeout) {
    base::Limit limit = limit_of(timeout);
    drain(limit);
  }
  void drain(base::Limit& limit);
  bool credited();
  // For a host that waits for several ends.
  /// The next `count` puts do not wait for the peer, or are refused.
  bool may_put(std::uint64_t count = 1) const noexcept {
    const std::uint64_t last = epoch() + count;
    if (failed() || last > limit_.load(std::memory_order_acquire)) return true;
    const std::uint64_t depth = peer_depth_.load(std::memory_order_acquire);
    return connected() && (last <= depth || base::reached(*word_.word, last - depth));
  }
  /// The next acquire in program order does not wait, or is refused.
  bool may_acquire() const noexcept {
    const std::uint64_t next = epoch() + 1;
    return failed() || next <= depth() || base::reached(done, next - depth());
  }
  /// A wait for the credit of the next put. Once connected.
  device::Wait wait_for_credit() const noexcept {
    const std::uint64_t next = epoch() + 1;
    const std::uint64_t depth = peer_depth_.load(std::memory_order_relaxed);
    return {word_.word, next > depth ? next - depth : 0, word_.parking, next, "wait for credit"};
  }
  /// An acquire on the stream may have to wait: not if the stream has carried out all puts itself, or the caller.
  bool awaits_sources(Stream stream) const noexcept {
    if (!connected() || rung_ != nullptr) return true;
    return stream.kind() != Stream::Kind::program_order && !is_used_on_alone(stream);
  }
  /// From now on puts that the engine posts leave behind those of other ends. Once connected.
  void give_way() {
    if (rung_ != nullptr) services().engine.post_behind(*rung_);
  }
  /// Such a put may wait for the engine's next turn, as credits do. Applies to the next ones.
  void put_off(bool may_wait) noexcept {
    if (rung_ != nullptr && rung_->bell().entry() != nullptr)
      rung_->bell().entry()->haste = may_wait ? backends::Haste::soon : backends::Haste::now;
  }
  /// Adds the places where threads sleep for what `may_put` looks at.
  void add_places(std::vector<base::Parking*>& places) const { places.push_back(word_.parking); }
  // Not `whole_epoch`: an instruction less.
  backends::Range whole() const noexcept { return {0, slot_bytes}; }
  /// Returns all that kernels need for puts; none if they cannot put. They raise `fault` on misuse. Once connected.
  std::optional<kernel::Out> by_kernel(device::Ledger& ledger, device::Driver* driver, std::uint64_t& fault);
  DeviceSender on_device(Stream stream) { return DeviceSender(hand_to_kernels(*this, stream)); }
  /// From now on kernels put. With the registry's mutex.
  void let_kernels_drive(const kernel::Out& out) { let_kernels_count(*out.count, *out.count, *out.fault); }
  /// Kernels that the driver refused leave an epoch begun that never completes.
  void refuse_epoch() noexcept { gpu_use()->refuse_epoch(); }

  // On the lane.
  void await_credit(device::Lane lane, std::uint64_t epoch) {
    await_connected(lane, epoch);
    if (!has_credit(epoch)) await_credit_slowly(lane, epoch);
  }
  /// Waits until the source slot of `epoch` may be overwritten.
  void await_source(device::Lane lane, std::uint64_t epoch) { await_sources(lane, epoch, epoch); }
  void await_sources(device::Lane lane, std::uint64_t first, std::uint64_t last);
  // After the driver refused part of the last acquire, or put: it completes once the stream has done the rest.
  void acquire_refused(Stream stream) noexcept { gpu_use()->mark_behind(stream); }
  void put_refused(Stream stream) noexcept { firing_refused(stream, epoch()); }

  /// From the next put on, on a host stream and in program order. The stream of a GPU is not limited: a put whose wait
  /// is ended there moves its bytes, into memory that the receiver has not released.
  void limit_credit(CreditLimit limit) { credit_limit_ = std::make_unique<const CreditLimit>(std::move(limit)); }
  base::Clock::duration waited(const device::Wait& wait, base::Clock::duration so_far, Timeout limit,
                               base::WaitNote& note) noexcept override;

  bool next_has_credit(std::uint64_t epoch) noexcept override {
    if (peer_depth_.load(std::memory_order_relaxed) == 1) return false;  // it cannot have, and the look costs a line
    return has_credit(epoch);
  }
  bool passed() const noexcept override { return written(); }
  void refuse_enqueued() override;
  std::string state() const override;
  base::EndCounts counts() const noexcept override;

 private:
  std::uint64_t waits_for() const noexcept override;
  std::pair<base::Lack, std::uint64_t> lacks(std::uint64_t epoch) const noexcept override;
  void reach_own(device::Driver& driver) override;
  /// Raises `visible_` to the completed puts, for acquires of a GPU's stream.
  backends::AfterTurn poll() override;

  [[noreturn, gnu::cold]] void refuse_part(backends::Range part) const;
  /// The put itself, on the lane.
  [[gnu::always_inline]] void fire(device::Lane lane, std::uint64_t epoch, backends::Range part) {
    fail_if_stopped(lane);
    if (lane.host != nullptr && lane.host->held_back().give != nullptr && fire_with_credit(lane, epoch, part)) return;
    await_credit(lane, epoch);
    report_failure(lane);
    if (!base::trace::on()) [[likely]]
      return enqueue(lane, epoch, part);
    device::trace_slice(lane, "put", traced, epoch, part.bytes, base::trace::Arrow::begins,
                        [this, lane, epoch, part] { enqueue(lane, epoch, part); });
  }
  /// True if the put waits for nothing and copies so little that a host may do it in the call: enqueueing takes 0.1 us,
  /// and these copies up to about 0.5 us. On the lane.
  bool is_brief(std::uint64_t epoch, backends::Range part) noexcept {
    constexpr std::size_t kMostBytes = 8192;
    return part.bytes <= kMostBytes && fires_by_stores() && has_credit(epoch);
  }
  /// The credit that the stream holds back leaves with the signal of this put, if that is to the same peer, waits for
  /// nothing and comes soon. False: the credit has left, and the put is still to be fired.
  bool fire_with_credit(device::Lane lane, std::uint64_t epoch, backends::Range part);
  /// Fires what the receiver has credited, and then the rest as credits come.
  void fire_all(device::Lane lane, std::uint64_t first, std::uint64_t last);
  /// Returns the last epoch, of those from `epoch` to `last`, that has its credit; waits if `epoch` has none.
  std::uint64_t await_credits(device::Lane lane, std::uint64_t epoch, std::uint64_t last);
  void acquire_on(Stream stream, std::uint64_t first, std::uint64_t last);
  /// In program order the source slot of `epoch` may be overwritten already: nothing is left to do or to check.
  bool is_free_here(Stream stream, std::uint64_t epoch) const noexcept {
    const bool free = stream.kind() == Stream::Kind::program_order && base::reached(done, epoch - depth());
    return free && !failed() && !base::races::kOn;
  }
  /// Loads the word. True if `released`, and so the epochs before it, are.
  bool look_for_credit(std::uint64_t released) noexcept {
    const std::uint64_t value = word_.word->value.load(std::memory_order_acquire);
    if (value < base::kPoison) credit_seen_ = value;
    return value < base::kPoison && value >= released;
  }
  /// On the lane: the put of `epoch` would not wait for its credit. Loads the word, unless that is known.
  bool has_credit(std::uint64_t epoch) noexcept {
    const std::uint64_t depth = peer_depth_.load(std::memory_order_relaxed);
    return epoch <= credit_seen_ + depth || look_for_credit(epoch - depth);
  }
  void await_credit_slowly(device::Lane lane, std::uint64_t epoch);
  void fail_without_credit(std::uint64_t epoch) noexcept;

  std::atomic<std::uint64_t> acquired_{0};  // the last epoch whose source an acquire of a GPU's stream waits for
  std::uint64_t credit_seen_ = 0;           // the last credit read: the word is looked at again only when it is spent
  std::unique_ptr<const CreditLimit> credit_limit_;
};

}  // namespace sluice::detail
