// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/copy_stream.hpp"
#include "runtime/channel.hpp"
#include "runtime/engine.hpp"

namespace sluice::detail {

class ReceiverCore final : public runtime::ChannelEnd, private runtime::Engine::Taker {
 public:
  using ChannelEnd::ChannelEnd;
  ~ReceiverCore() override;

  Slice wait(Stream stream);
  void release(Stream stream);
  /// Blocks the host until every credit is over here, and what was taken for a GPU's stream is in place.
  void complete(std::optional<Timeout> timeout);
  void complete(base::Limit& limit);
  std::optional<Slice> test();
  std::optional<Slice> wait_for(Timeout timeout);
  /// What kernels need for its waits and releases, which `fault` is for too; once connected. Nothing: they cannot.
  std::optional<kernel::In> by_kernel(device::Ledger& ledger, device::Driver* driver, std::uint64_t& fault);
  DeviceReceiver on_device(Stream stream);
  /// From now on they do. With the registry's mutex.
  void let_kernels_wait(const kernel::In& in);

  /// Takes the number of the next release. @throws Error{Code::misuse} without a wait
  std::uint64_t begin_release();
  std::uint64_t released() const noexcept { return releases_.last(); }

  // On the lane.
  /// Until the bytes of `epoch` are in its slot.
  void land(device::Lane lane, std::uint64_t epoch);
  void give_back(device::Lane lane, std::uint64_t epoch);
  // What the driver refused of the last wait, or release, is over once the stream has passed the rest.
  void wait_refused(Stream stream) noexcept;
  void release_refused(Stream stream) noexcept { firing_refused(stream, released()); }

  backends::Slots target() const override { return slots; }
  bool passed() const noexcept override;
  bool written() const noexcept override { return fired(releases_.begun()); }
  /// The credits for what the sender has announced; more than those it does not need.
  bool has_written(const runtime::Final& final) const noexcept override {
    return failed() || done.value.load(std::memory_order_acquire) + depth() >= final.wanted;
  }
  bool has_arrived(const runtime::Final& final) const noexcept override { return failed() || landed(final.wanted); }
  void refuse_enqueued() override;
  runtime::Final final() const noexcept override { return {epoch(), released()}; }
  std::string state() const override;

 private:
  void on_connect(int remote_depth) override;
  void on_peer_closed(const runtime::Final& final) noexcept override;
  bool complete_without(const runtime::Final& final) override;
  std::uint64_t last_possible(const runtime::Final& final) const noexcept override { return final.wanted; }
  std::uint64_t waits_for() const noexcept override;
  void reach_own(device::Driver& driver) override;
  void stop_taking() noexcept override;
  backends::Slots source() const override { return {}; }
  std::string why_refused(std::uint64_t epoch) const override;

  void await_and_take(device::Lane lane, std::uint64_t epoch);
  void pass(device::Lane lane);
  backends::AfterTurn take_landed() override;
  void take_for_stream(std::uint64_t epoch);
  void take_by_courier(std::uint64_t epoch);
  void have_taken(std::uint64_t epoch);
  /// Nothing is under way of what is taken for a GPU's stream.
  bool brought() const noexcept { return brought_ == nullptr || base::reached(brought_.load()->word, taking_.load()); }
  void await_signal(device::Lane lane, std::uint64_t epoch);
  /// On all rails.
  bool landed(std::uint64_t epoch) const noexcept;
  bool lands_in_target() const noexcept { return landing_->way() == backends::Landing::Way::direct; }
  void take(std::uint64_t epoch);
  std::uint64_t waits_passed() const noexcept {
    return landed_.word.value.load(std::memory_order_acquire) + refused_waits_ +
           by_host_.load(std::memory_order_acquire);
  }

  std::uint64_t signal_seen_ = 0;  // by the stream: looking at the word again takes its line from who raises it
  base::Progress& landed_ = base::take_progress();  // waits that have passed on their stream
  std::atomic<std::uint64_t> refused_waits_{0};     // which a GPU's driver refused
  std::uint64_t given_ = 0;                         // waits given to a GPU's stream
  std::atomic<base::Progress*> taken_{nullptr};     // what the engine has taken from the landing for a GPU's stream
  bool takes_ = false;                              // it does
  std::atomic<std::uint64_t> to_take_{0};           // the last epoch that the engine is to take
  std::atomic<std::uint64_t> taking_{0};            // the last that it has begun to take
  std::atomic<base::Progress*> brought_{nullptr};   // and that is over, which poison does not touch
  std::optional<device::CopyStream> courier_;       // who takes into a GPU's memory
  std::atomic<std::uint64_t> by_host_{0};           // and those of host forms, which may pass before an enqueued one
  Warning warning_;                                 // of wait_for
};

}  // namespace sluice::detail
