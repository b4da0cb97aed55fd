// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"

#include <memory>
#include <vector>

namespace bench {
namespace {

class Halo : public Contender {
 public:
  explicit Halo(const Workload& workload) : workload_(workload) {
    if (workload_.drive != Drive::in_order)
      queue_ = make_queue(workload_, items_of_plan(workload_, workload_.neighbours));
    out_.reserve(static_cast<std::size_t>(workload_.neighbours));
    in_.reserve(static_cast<std::size_t>(workload_.neighbours));
    for (int k = 0; k < workload_.neighbours; ++k) open(k);
    for (auto& sender : out_) plan_.add(sender);
    for (auto& receiver : in_) plan_.add(receiver);
    plan_.commit(stream());
    if (queue_)
      queue_->prepare(
          workload_.drive, [this] { step(); }, workload_.depth);
  }

  std::string describe() const { return plan_.describe(); }

  double run(long count) override {
    if (queue_) return queue_->drive(workload_.drive, count, [this] { step(); });
    return timed_steps(count, [this] { step(); });
  }

 private:
  sluice::Stream stream() { return queue_ ? queue_->stream() : sluice::Stream(); }

  void open(int k) {
    const Neighbour ranks = neighbour(workload_.context, k);
    const sluice::Tag tag = workload_.tag + static_cast<sluice::Tag>(k);
    slots_.emplace_back(workload_, 1);
    out_.push_back(workload_.context.sender(ranks.to, tag, slots_.back().all(), {.stream = stream()}));
    slots_.emplace_back(workload_, workload_.depth);
    in_.push_back(workload_.context.receiver(ranks.from, tag, slots_.back().all(),
                                             {.depth = workload_.depth, .stream = stream()}));
  }

  void step() {
    plan_.start(stream());
    plan_.wait(stream());
    if (workload_.options.touch) touch_all();
    plan_.release(stream());
  }

  void touch_all() {
    for (const sluice::Receiver& receiver : in_) {
      const std::byte* const payload = plan_.slot(receiver).data();
      if (queue_) {
        queue_->run([this, payload] { touch(workload_, payload); });
      } else {
        touch(workload_, payload);
      }
    }
  }

  const Workload workload_;
  std::unique_ptr<Queue> queue_;
  std::vector<Slots> slots_;
  std::vector<sluice::Sender> out_;
  std::vector<sluice::Receiver> in_;
  sluice::Plan plan_ = workload_.context.plan();
};

}  // namespace

Neighbour neighbour(const sluice::Context& context, int k) {
  const int size = context.size();
  const int distance = 1 + k % (size - 1);
  return {(context.rank() + distance) % size, (context.rank() + size - distance) % size};
}

long items_of_plan(const Workload& workload, int neighbours) {
  constexpr long kItemsPerNeighbour = 4;  // at most: put, wait, read, release
  constexpr long kKernelsPerStep = 5;     // in a graph, for all neighbours together: start (at most 3), wait, release
  return replays(workload.drive) ? kKernelsPerStep * workload.depth : kItemsPerNeighbour * neighbours;
}

Ours make_halo(const Workload& workload) { return described(std::make_unique<Halo>(workload)); }

}  // namespace bench
