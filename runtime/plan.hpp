// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/plan.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checks.hpp"
#include "runtime/kernel_plan.hpp"
#include "runtime/services.hpp"

namespace sluice::detail {

/// State of a plan for the checks. Its sends and its receives have orders of their own: they use different channels.
struct PlanChecks {
  runtime::OneUser user;
  runtime::RunOrder sends;
  runtime::RunOrder receives;
};

class PlanCore final : public std::enable_shared_from_this<PlanCore> {
 public:
  PlanCore(std::shared_ptr<const runtime::Services> services, Rank rank)
      : services_(std::move(services)), checks_(services_->checks ? std::make_unique<PlanChecks>() : nullptr),
        rank_(rank) {}
  PlanCore(const PlanCore&) = delete;
  PlanCore& operator=(const PlanCore&) = delete;
  ~PlanCore();

  void add(std::shared_ptr<SenderCore> sender);
  void add(std::shared_ptr<ReceiverCore> receiver);
  void commit(Stream stream, std::optional<Timeout> timeout);
  void acquire(Stream stream);
  void start(Stream stream);
  void wait(Stream stream);
  void release(Stream stream);
  /// Begins the capture that the stream is in, as the first verb of it does. @throws Error as verbs do
  void join_capture(Stream stream) { check_stream(stream); }
  /// The capture that was joined last counts for nothing: its graph is never launched, or leaves all slots as they
  /// were.
  void leave_capture() noexcept {
    if (std::exchange(capture_, 0) != 0) counts_ = at_capture_;
  }
  /// A call of the program, which the checks see; without them nothing.
  class Use {
   public:
    /// @throws Error{Code::misuse} if another thread uses the plan, or memory of a channel is freed
    Use(PlanCore& plan, runtime::Verb verb, const void* from) : checks_(plan.checks_.get()) {
      if (checks_ != nullptr) plan.begin_use(verb, from);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      if (checks_ != nullptr) checks_->user.leave();
    }

   private:
    PlanChecks* checks_;
  };
  Slice slot(const SenderCore& sender) const;
  Slice slot(const ReceiverCore& receiver) const;
  std::string describe() const;

  const base::Origin origin;

 private:
  Error misuse(const std::string& what) const { return {Code::misuse, rank_, -1, 0, 0, what}; }
  void begin_use(runtime::Verb verb, const void* from);
  runtime::RunOrder& order_of(const std::vector<PlanOut>&) const noexcept { return checks_->sends; }
  runtime::RunOrder& order_of(const std::vector<PlanIn>&) const noexcept { return checks_->receives; }
  std::uint64_t epoch_of(runtime::Verb verb) const noexcept;
  void check_adding() const;
  void join(runtime::ChannelEnd& end);
  void check_stream(Stream stream);
  device::StreamState state_of(Stream stream);
  void update_capture(std::uint64_t now);
  void end_capture();
  void let_kernels_drive();
  bool kernels_drive() const noexcept { return kernels_ != nullptr && kernels_->begun(); }
  void check_failures(Stream stream) const;
  void fail_if_stopped(device::Lane lane) noexcept;
  void share_bells();
  void check_for_kernels(const runtime::ChannelEnd& end) const;
  /// Like device::in_order; work that a host stream still has to do keeps the plan alive. If the driver refuses it,
  /// then `refused` of each row's end makes sure that nothing waits for it.
  template <class F, class Row, class Core>
  void issue(Stream stream, F work, const std::vector<Row>& rows, void (Core::*refused)(Stream) noexcept) {
    if (stream.kind() == Stream::Kind::program_order) {
      work(device::Lane{});
    } else if (!device::of_gpu(stream)) {
      if (checks_ != nullptr) return give_checked(stream, std::move(work), rows);
      device::in_order(stream, [self = shared_from_this(), work](device::Lane lane) mutable {
        self->fail_if_stopped(lane);
        work(lane);
      });
    } else if (!launch([&] { device::on_gpu(device::GpuCall(stream, gpu_), std::move(work)); })) {
      for (const Row& row : rows) ((*row.core).*refused)(stream);
    }
  }
  template <class F, class Row>
  void give_checked(Stream stream, F work, const std::vector<Row>& rows) {
    const auto* const host = static_cast<const HostStream::Impl*>(stream.handle());
    runtime::RunOrder& order = order_of(rows);
    const runtime::Call call = checks_->user.current();
    const std::uint64_t number = order.enqueue({call, epoch_of(call.verb), host->name()});
    const auto checked = [self = shared_from_this(), &order, number, work](device::Lane lane) {
      const auto verb = [self, work](device::Lane runs_on) mutable {
        self->fail_if_stopped(runs_on);
        work(runs_on);
      };
      order.run(number, lane, verb, [&](const runtime::RunOrder::TooEarly& what) {
        for (auto* end : self->ends_) end->runs_too_early(lane, what);
      });
    };
    try {
      device::in_order(stream, checked);
    } catch (...) {
      order.withdraw(number);
      throw;
    }
  }
  /// Work that the driver refuses fails all channels. If the stream captures, the work was not to run at all, and only
  /// the graph is lost. Returns whether the driver took it.
  template <class F>
  bool launch(F work) {
    try {
      work();
      return true;
    } catch (const device::GpuError& reason) {
      if (capture_ != 0) throw misuse(std::string("the graph that is captured must not be launched: ") + reason.what());
      for (auto* end : ends_) end->fail(Code::transport, reason.what());
      return false;
    }
  }
  /// For kernels, which themselves count what the stream was given of them.
  template <class F>
  void launch(Stream stream, const char* name, F work) {
    (void)launch([&] { device::traced(stream, gpu_, name, std::move(work)); });
  }
  void await_credits(device::Lane lane, std::uint64_t start);
  void put_all(device::Lane lane, std::uint64_t start);
  void note_releases(std::uint64_t release, const runtime::Call& call);
  void release_all(device::Lane lane, std::uint64_t release);

  std::shared_ptr<const runtime::Services> services_;
  const std::unique_ptr<PlanChecks> checks_;  // null without SLUICE_CHECK
  Rank rank_;
  bool committed_ = false;
  Stream stream_;                                // of this kind
  Stream remembered_ = Stream::program_order();  // the last one that the ends know
  int gpu_ = 0;                                  // and of this GPU, if it is a GPU's
  std::vector<PlanOut> out_;
  std::vector<PlanIn> in_;
  std::vector<runtime::ChannelEnd*> ends_;  // of both
  std::vector<std::shared_ptr<backends::Doorbell>> put_bells_;
  std::vector<std::shared_ptr<backends::Doorbell>> credit_bells_;
  /// The host's counts: after the plan was captured they are right modulo the slots of every channel.
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
