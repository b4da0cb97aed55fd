// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/gpu_queue.hpp"
#include "apps/bench/ours/kernel_ping_pong.hpp"
#include "apps/bench/ours/ours.hpp"

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

// A channel each way between the partners.
class Pair {
 public:
  Pair(const Case& one_case, sluice::Stream stream)
      : bytes_(one_case.bytes), source_(one_case, 1), target_(one_case, one_case.depth),
        out_(one_case.context.sender(one_case.peer, one_case.tag, source_.all(), {.stream = stream})),
        in_(one_case.context.receiver(one_case.peer, one_case.tag, target_.all(),
                                      {.depth = one_case.depth, .stream = stream})) {
    out_.wait_connected();
    in_.wait_connected();
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
  explicit InOrder(const Case& one_case) : case_(one_case), pair_(one_case, {}) {}
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        if (case_.first) pair_.put({});
        use(case_, pair_.wait({}));
        pair_.release({});
        if (!case_.first) pair_.put({});
      }
    });
  }

 private:
  const Case case_;
  Pair pair_;
};

class OnStream : public Contender {
 public:
  explicit OnStream(const Case& one_case)
      : case_(one_case), queue_(make_queue(one_case, kItemsPerStep)), pair_(one_case, queue_->stream()) {}
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    return queue_->drive(case_.drive, count, [this] { step(); });
  }

 private:
  void step() {
    const sluice::Stream stream = queue_->stream();
    if (case_.first) put(stream);
    const std::byte* payload = nullptr;
    queue_->verb(Drive::enqueue_wait, [&] { payload = pair_.wait(stream); });
    if (case_.options.touch) queue_->run([this, payload] { use(case_, payload); });
    queue_->verb(Drive::enqueue_release, [&] { pair_.release(stream); });
    if (!case_.first) put(stream);
  }

  void put(sluice::Stream stream) {
    queue_->verb(Drive::enqueue_put, [&] { pair_.put(stream); });
  }

  const Case case_;
  std::unique_ptr<Queue> queue_;
  Pair pair_;
};

// Only operations of a plan can be captured.
class ByPlan : public Contender {
 public:
  explicit ByPlan(const Case& one_case)
      : case_(one_case), queue_(make_queue(one_case, items_of_plan(one_case, 1))), pair_(one_case, queue_->stream()) {
    pair_.join(plan_);
    plan_.commit(queue_->stream());
    queue_->prepare(
        case_.drive, [this] { step(); }, case_.depth);
  }
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    return queue_->drive(case_.drive, count, [this] { step(); });
  }

 private:
  void step() {
    const sluice::Stream stream = queue_->stream();
    if (case_.first) plan_.start(stream);
    plan_.wait(stream);
    if (!case_.first) plan_.start(stream);
    plan_.release(stream);
  }

  const Case case_;
  std::unique_ptr<Queue> queue_;
  Pair pair_;
  sluice::Plan plan_ = case_.context.plan();
};

// All rounds in one launch, by one block.
class InKernel : public Contender {
 public:
  explicit InKernel(const Case& one_case)
      : case_(one_case), queue_(make_gpu_queue(one_case, 1)), kernel_(load()), pair_(one_case, queue_->stream()),
        wrong_(one_case.context.allocate(sizeof(std::uint64_t), sluice::Space::pinned).all()),
        args_{.to = pair_.to_peer(queue_->stream()),
              .from = pair_.from_peer(queue_->stream()),
              .bytes = one_case.bytes,
              .rounds = 0,
              .first = one_case.first ? 1U : 0U,
              .wrong = &wrong()} {
    wrong() = 0;
    launch(0);  // the first launch may wait for the stream, which must not be held then
    queue_->synchronize();
  }
  std::string describe() const { return pair_.describe(); }

  double run(long count) override {
    const std::uint64_t all = pair_.puts() + static_cast<std::uint64_t>(Queue::kLeadIn + count);
    const double taken = queue_->time_ahead([&] { launch(Queue::kLeadIn); }, [&] { launch(count); });
    if (wrong() != 0 || pair_.puts() != all)
      throw std::runtime_error(
          fmt::format("kernels have put {} times, not {}; a verb has returned {}", pair_.puts(), all, wrong()));
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
    queue_->launch_kernel(kernel_, args_, threads_to_copy(case_.bytes));
  }

  std::uint64_t& wrong() const { return wrong_.as<std::uint64_t>().front(); }

  const Case case_;
  std::unique_ptr<GpuQueue> queue_;
  void* kernel_;
  Pair pair_;
  sluice::Slice wrong_;
  KernelPingPongArgs args_;
};

}  // namespace

Ours make_ping_pong(const Case& one_case) {
  if (one_case.drive == Drive::in_order) return described(std::make_unique<InOrder>(one_case));
  return described(std::make_unique<OnStream>(one_case));
}

Ours make_plan_ping_pong(const Case& one_case) { return described(std::make_unique<ByPlan>(one_case)); }

Ours make_kernel_ping_pong(const Case& one_case) { return described(std::make_unique<InKernel>(one_case)); }

}  // namespace bench
