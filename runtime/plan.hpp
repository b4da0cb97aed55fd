// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/plan.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernel_plan.hpp"

namespace sluice::detail {

class PlanCore final : public std::enable_shared_from_this<PlanCore> {
 public:
  PlanCore(std::shared_ptr<const runtime::Services> services, Rank rank)
      : services_(std::move(services)), rank_(rank) {}
  PlanCore(const PlanCore&) = delete;
  PlanCore& operator=(const PlanCore&) = delete;
  ~PlanCore();

  void add(const std::shared_ptr<SenderCore>& sender);
  void add(const std::shared_ptr<ReceiverCore>& receiver);
  void commit(Stream stream, std::optional<Timeout> timeout);
  void acquire(Stream stream);
  void start(Stream stream);
  void wait(Stream stream);
  void release(Stream stream);
  Slice slot(const SenderCore& sender) const;
  Slice slot(const ReceiverCore& receiver) const;
  std::string describe() const;

  const base::Origin origin;

 private:
  /// Channels that advance together: their epochs differ by a constant.
  struct Out {
    std::shared_ptr<SenderCore> core;
    std::uint64_t first = 0;  ///< epoch before the plan's first start
  };
  struct In {
    std::shared_ptr<ReceiverCore> core;
    std::uint64_t first_wait = 0;
    std::uint64_t first_release = 0;
  };

  Error misuse(const std::string& what) const { return {Code::misuse, rank_, -1, 0, 0, what}; }
  void check_adding() const;
  void join(runtime::ChannelEnd& end) const;
  void check_stream(Stream stream);
  device::StreamState state_of(Stream stream);
  void look_at_capture(std::uint64_t now);
  void end_capture();
  void let_kernels_drive();
  bool kernels_drive() const noexcept { return kernels_ != nullptr && kernels_->begun(); }
  void check_failures(Stream stream) const;
  void fail_if_stopped(device::Lane lane) noexcept;
  void share_bells(Stream stream);
  void check_for_kernels(const runtime::ChannelEnd& end) const;
  void reach_bells(device::Driver& driver);
  void prepare_kernels(Stream stream);
  /// As device::in_order; work that a host stream still has keeps the plan alive. `refused`: see `launch`.
  template <class F, class Refused>
  void issue(Stream stream, F work, Refused refused) {
    if (stream.kind() == Stream::Kind::program_order) {
      work(device::Lane{});
    } else if (device::of_gpu(stream)) {
      launch([&] { device::on_gpu(device::GpuCall(stream, gpu_), std::move(work)); }, refused);
    } else {
      device::in_order(stream, [self = shared_from_this(), work](device::Lane lane) mutable {
        self->fail_if_stopped(lane);
        work(lane);
      });
    }
  }
  /// What the driver refuses fails all channels, unless it was only to be captured, and will never happen: `refused`
  /// sees to it that it is not waited for.
  template <class F, class Refused>
  void launch(F work, Refused refused) {
    try {
      work();
    } catch (const device::GpuError& reason) {
      if (capture_ != 0) throw misuse(std::string("the graph that is captured must not be launched: ") + reason.what());
      for (const auto& out : out_) out.core->fail(Code::transport, reason.what());
      for (const auto& in : in_) in.core->fail(Code::transport, reason.what());
      refused();
    }
  }
  /// The same for kernels, which count what the stream was given of them.
  template <class F>
  void launch(Stream stream, const char* name, F work) {
    launch([&] { device::traced(stream, gpu_, name, std::move(work)); }, [] {});
  }
  void fire(device::Lane lane, std::uint64_t start);
  void await_credits(device::Lane lane, std::span<const Out> outs, std::uint64_t start);
  void put_all(device::Lane lane, std::span<const Out> outs, std::uint64_t start);
  static void put(device::Lane lane, SenderCore& core, std::uint64_t epoch);
  void give_back(device::Lane lane, std::uint64_t release);
  void give_back_all(device::Lane lane, std::uint64_t release);

  std::shared_ptr<const runtime::Services> services_;
  Rank rank_;
  bool committed_ = false;
  Stream stream_;  // of this kind
  int gpu_ = 0;    // and of this GPU, where it is a GPU's
  std::vector<Out> out_;
  std::vector<In> in_;
  std::vector<std::shared_ptr<backends::Doorbell>> put_bells_;
  std::vector<std::shared_ptr<backends::Doorbell>> credit_bells_;
  /// As far as the host knows: once the plan was captured that is right modulo the slots of every channel.
  struct Counts {
    std::uint64_t starts = 0;
    std::uint64_t waits = 0;
    std::uint64_t releases = 0;
  };
  Counts counts_;
  std::unique_ptr<KernelPlan> kernels_;  // on streams of GPUs
  std::uint64_t capture_ = 0;            // the number of the one under way; 0: none
  Counts at_capture_;                    // when it began
};

}  // namespace sluice::detail
