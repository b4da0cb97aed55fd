// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/channel.hpp"
#include "runtime/engine.hpp"

namespace sluice::detail {

class SenderCore final : public runtime::ChannelEnd, private runtime::Engine::Taker {
 public:
  using ChannelEnd::ChannelEnd;
  ~SenderCore() override;

  Slice acquire(Stream stream);
  void put(Stream stream, backends::Range part);
  /// Blocks the host until every put is over here.
  void complete(std::optional<Timeout> timeout);
  void complete(base::Limit& limit);
  void drain(std::optional<Timeout> timeout);
  bool credited();
  backends::Range whole() const noexcept { return {0, slot_bytes}; }
  /// What kernels need for its puts, which `fault` is for too; once connected. Nothing: they cannot do them.
  std::optional<kernel::Out> by_kernel(device::Ledger& ledger, device::Driver* driver, std::uint64_t& fault);
  DeviceSender on_device(Stream stream);
  /// From now on they do. With the registry's mutex.
  void let_kernels_put(const kernel::Out& out) { let_kernels_count(*out.count, *out.count, *out.fault); }
  /// Kernels that the driver refused leave an epoch begun that never completes.
  void refuse_epoch() noexcept { gpu_use()->refuse_epoch(); }

  // On the lane.
  void await_credit(device::Lane lane, std::uint64_t epoch) {
    await_connected(lane);
    if (epoch > credit_seen_ + target_depth_.load(std::memory_order_relaxed)) look_for_credit(lane, epoch);
  }
  /// Until the source slot of `epoch` may be overwritten.
  void await_source(device::Lane lane, std::uint64_t epoch);
  // What the driver refused of the last acquire, or put, is over once the stream has passed the rest.
  void acquire_refused(Stream stream) noexcept { gpu_use()->mark_behind(stream); }
  void put_refused(Stream stream) noexcept { firing_refused(stream, epoch()); }

  backends::Slots target() const override { return {}; }
  bool passed() const noexcept override { return fired(epochs_.begun()); }
  bool written() const noexcept override { return passed(); }
  /// All that the peer waits for, or ever will. The rest of what was credited moves nothing: nobody will look.
  bool has_written(const runtime::Final& final) const noexcept override {
    return failed() || base::reached(done, final.wanted);
  }
  bool has_arrived(const runtime::Final&) const noexcept override { return true; }
  void refuse_enqueued() override;
  runtime::Final final() const noexcept override { return {epoch(), epoch()}; }
  std::string state() const override;

 private:
  void on_connect(int remote_depth) override;
  void on_peer_closed(const runtime::Final& final) noexcept override;
  bool complete_without(const runtime::Final& final) override;
  std::uint64_t last_possible(const runtime::Final& final) const noexcept override {
    return final.credited + target_depth_.load(std::memory_order_relaxed);
  }
  std::uint64_t waits_for() const noexcept override;
  void reach_own(device::Driver& driver) override;
  void stop_taking() noexcept override;
  backends::AfterTurn take_landed() override;
  backends::Slots source() const override { return slots; }
  std::string why_refused(std::uint64_t epoch) const override;

  [[noreturn, gnu::cold]] void refuse_part(backends::Range part) const;
  /// The put itself, on the lane.
  void fire(device::Lane lane, std::uint64_t epoch, backends::Range part) {
    fail_if_stopped(lane);
    await_credit(lane, epoch);
    report_failure(lane);
    if (!base::trace::on()) [[likely]]
      return enqueue(lane, epoch, part);
    device::trace_slice(lane, "put", traced, epoch, part.bytes, base::trace::Arrow::begins,
                        [this, lane, epoch, part] { enqueue(lane, epoch, part); });
  }
  void acquire_on(Stream stream, std::uint64_t next);
  void look_for_credit(device::Lane lane, std::uint64_t epoch);

  std::atomic<std::uint64_t> target_depth_{0};   // 0: not connected yet
  std::atomic<base::Progress*> taken_{nullptr};  // puts that have completed, for acquires of a GPU's stream
  bool takes_ = false;                           // the engine raises that
  std::atomic<std::uint64_t> awaited_{0};        // the last epoch whose source an acquire of its waits for
  std::uint64_t credit_seen_ = 0;  // the last credit read: the word is looked at again only when it is spent
};

}  // namespace sluice::detail
