// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"

#include <memory>

namespace bench {
namespace {

class Overlap : public Contender {
 public:
  explicit Overlap(const Workload& workload)
      : workload_(workload), source_(workload, 1), target_(workload, workload.depth) {
    if (workload_.drive != Drive::in_order) queue_ = make_queue(workload_, kItemsPerStep);
    sluice::Context& context = workload_.context;
    out_ = context.sender(workload_.peer, workload_.tag, source_.all());
    in_ = context.receiver(workload_.peer, workload_.tag, target_.all(), {.depth = workload_.depth});
    out_.wait_connected();
    in_.wait_connected();
  }

  std::string describe() const { return out_.describe(); }

  double run(long count) override {
    return timed_steps(count, [this] { step(); });
  }

 private:
  void step() {
    const sluice::Stream stream = queue_ ? queue_->stream() : sluice::Stream();
    out_.put(stream, 0, workload_.bytes);
    if (queue_) enqueue_wait(stream);
    compute(workload_.compute_ns);
    if (queue_) {
      queue_->synchronize();
    } else {
      touch(workload_, in_.wait(stream).data());
      in_.release(stream);
    }
  }

  void enqueue_wait(sluice::Stream stream) {
    const std::byte* const payload = in_.wait(stream).data();
    if (workload_.options.touch) queue_->run([this, payload] { touch(workload_, payload); });
    in_.release(stream);
  }

  const Workload workload_;
  std::unique_ptr<Queue> queue_;
  Slots source_;
  Slots target_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

class Compute : public Contender {
 public:
  explicit Compute(const Workload& workload) : ns_(workload.compute_ns) {}
  double run(long count) override {
    return timed_steps(count, [this] { compute(ns_); });
  }

 private:
  const double ns_;
};

// Multiplies `length` times. Each multiplication waits for the previous one, so the time hardly depends on other work
// of the core.
void multiply(long length) {
  double value = 1;
  for (long i = 0; i < length; ++i) {
    value *= 1.0000001;
    keep(value);
  }
}

double ns_per_multiplication() {
  constexpr long kLength = 100000;
  double shortest = timed([] { multiply(kLength); });
  for (int i = 0; i < 20; ++i) shortest = std::min(shortest, timed([] { multiply(kLength); }));
  return shortest / kLength;
}

}  // namespace

void compute(double ns) {
  static const double ns_each = ns_per_multiplication();
  multiply(static_cast<long>(ns / ns_each));
}

Ours make_overlap(const Workload& workload) { return described(std::make_unique<Overlap>(workload)); }

std::unique_ptr<Contender> make_compute(const Workload& workload) { return std::make_unique<Compute>(workload); }

}  // namespace bench
