// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/gpu_queue.hpp"
#include "apps/bench/ours/kernel_ping_pong.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/ours/received.hpp"

#include <fmt/core.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

namespace sluice::device {
std::span<const std::byte> cuda_kernel_ping_pong() noexcept;  // kernel_ping_pong.cu
std::span<const std::byte> hip_kernel_ping_pong() noexcept;
}  // namespace sluice::device

namespace bench {
namespace {

// A channel in each direction between the partners.
class Pair {
 public:
  Pair(const Workload& workload, sluice::Stream stream)
      : bytes_(workload.bytes), source_(workload, 1), target_(workload, workload.depth),
        out_(workload.context.sender(workload.peer, workload.tag, source_.all(), {.stream = stream})),
        in_(workload.context.receiver(workload.peer, workload.tag, target_.all(),
                                      {.depth = workload.depth, .stream = stream})) {
    out_.wait_connected();
    in_.wait_connected();
  }

  /// With --touch, writes the source.
  void compute(const Workload& workload, Queue* queue, sluice::Stream stream) {
    if (!workload.options.touch) return;
    bench::compute(workload, queue, out_.acquire(stream).data());
  }
  void put(sluice::Stream stream) { out_.put(stream, 0, bytes_); }
  const std::byte* wait(sluice::Stream stream) { return in_.wait(stream).data(); }
  void release(sluice::Stream stream) { in_.release(stream); }
  std::string describe() const { return out_.describe(); }

  void join(sluice::Plan& plan) { plan.add(out_).add(in_); }
  sluice::DeviceSender to_peer(sluice::Stream stream) { return out_.on_device(stream); }
  sluice::DeviceReceiver from_peer(sluice::Stream stream) { return in_.on_device(stream); }
  std::uint64_t puts() const { return out_.epoch(); }

 private:
  std::size_t bytes_;
  Slots source_;
  Slots target_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

class InOrder : public Contender {
 public:
  explicit InOrder(const Workload& workload) : workload_(workload), pair_(workload, {}) {}
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    return timed_ping_pong(
        workload_, count, [this] { send(); }, [this] { receive(); });
  }

 private:
  void send() {
    pair_.compute(workload_, nullptr, {});
    pair_.put({});
  }
  void receive() {
    touch(workload_, pair_.wait({}));
    pair_.release({});
  }

  const Workload workload_;
  Pair pair_;
};

class OnStream : public Contender {
 public:
  explicit OnStream(const Workload& workload)
      : workload_(workload),
        queue_(make_queue(workload, workload.options.touch ? kItemsPerComputedStep : kItemsPerStep)),
        pair_(workload, queue_->stream()) {}
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    return queue_->drive(workload_.drive, count, [this] { step(); });
  }

 private:
  void step() {
    const sluice::Stream stream = queue_->stream();
    if (workload_.first) put(stream);
    const std::byte* payload = nullptr;
    queue_->verb(Drive::enqueue_wait, [&] { payload = pair_.wait(stream); });
    read(workload_, queue_.get(), payload);
    queue_->verb(Drive::enqueue_release, [&] { pair_.release(stream); });
    if (!workload_.first) put(stream);
  }

  void put(sluice::Stream stream) {
    pair_.compute(workload_, queue_.get(), stream);
    queue_->verb(Drive::enqueue_put, [&] { pair_.put(stream); });
  }

  const Workload workload_;
  std::unique_ptr<Queue> queue_;
  Pair pair_;
};

// Runs with or without a graph: only the operations of a plan can be captured.
class ByPlan : public Contender {
 public:
  explicit ByPlan(const Workload& workload)
      : workload_(workload), queue_(make_queue(workload, items_of_plan(workload, 1))),
        pair_(workload, queue_->stream()) {
    pair_.join(plan_);
    plan_.commit(queue_->stream());
    queue_->prepare(
        workload_.drive, [this] { step(); }, workload_.depth);
  }
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    return queue_->drive(workload_.drive, count, [this] { step(); });
  }

 private:
  void step() {
    const sluice::Stream stream = queue_->stream();
    if (workload_.first) plan_.start(stream);
    plan_.wait(stream);
    if (!workload_.first) plan_.start(stream);
    plan_.release(stream);
  }

  const Workload workload_;
  std::unique_ptr<Queue> queue_;
  Pair pair_;
  sluice::Plan plan_ = workload_.context.plan();
};

// One block of a kernel runs all round trips of a launch.
class InKernel : public Contender {
 public:
  explicit InKernel(const Workload& workload)
      : workload_(workload), queue_(make_gpu_queue(workload, 1)), kernel_(load()), pair_(workload, queue_->stream()),
        wrong_(workload.context.allocate(sizeof(std::uint64_t), sluice::Space::pinned).all()),
        args_{.to = pair_.to_peer(queue_->stream()),
              .from = pair_.from_peer(queue_->stream()),
              .bytes = workload.bytes,
              .rounds = 0,
              .first = workload.first ? 1U : 0U,
              .wrong = &wrong()} {
    wrong() = 0;
    launch(0);  // while no gate is closed, because the first launch may wait until the stream is idle
    queue_->synchronize();
  }
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    const std::uint64_t expected_puts = pair_.puts() + static_cast<std::uint64_t>(Queue::kLeadIn + count);
    const double taken = queue_->time_ahead([&] { launch(Queue::kLeadIn); }, [&] { launch(count); });
    if (wrong() != 0 || pair_.puts() != expected_puts)
      throw std::runtime_error(fmt::format("kernels have put {} times, not {}; a verb has returned {}", pair_.puts(),
                                           expected_puts, wrong()));
    return taken;
  }

 private:
  void* load() {
    const bool cuda = queue_->stream().kind() == sluice::Stream::Kind::cuda;
    return queue_->load_kernel(cuda ? sluice::device::cuda_kernel_ping_pong() : sluice::device::hip_kernel_ping_pong(),
                               KernelPingPongArgs::kKernel);
  }

  void launch(long rounds) {
    args_.rounds = static_cast<std::uint64_t>(rounds);
    queue_->launch_kernel(kernel_, args_, threads_to_copy(workload_.bytes));
  }

  std::uint64_t& wrong() const { return wrong_.as<std::uint64_t>().front(); }

  const Workload workload_;
  std::unique_ptr<GpuQueue> queue_;
  void* kernel_;
  Pair pair_;
  sluice::Slice wrong_;
  KernelPingPongArgs args_;
};

}  // namespace

Ours make_ping_pong(const Workload& workload) {
  if (workload.drive == Drive::in_order) return described(std::make_unique<InOrder>(workload));
  return described(std::make_unique<OnStream>(workload));
}

Ours make_plan_ping_pong(const Workload& workload) { return described(std::make_unique<ByPlan>(workload)); }

Ours make_kernel_ping_pong(const Workload& workload) { return described(std::make_unique<InKernel>(workload)); }

}  // namespace bench
