// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"

#include <memory>
#include <vector>

namespace bench {
namespace {

class Halo : public Contender {
 public:
  explicit Halo(const Case& one_case) : case_(one_case) {
    if (case_.drive != Drive::in_order) queue_ = make_queue(case_, items_of_plan(case_, case_.neighbours));
    out_.reserve(static_cast<std::size_t>(case_.neighbours));
    in_.reserve(static_cast<std::size_t>(case_.neighbours));
    for (int k = 0; k < case_.neighbours; ++k) open(k);
    for (auto& sender : out_) plan_.add(sender);
    for (auto& receiver : in_) plan_.add(receiver);
    plan_.commit(stream());
    if (queue_)
      queue_->prepare(
          case_.drive, [this] { step(); }, case_.depth);
  }

  std::string describe() const { return plan_.describe(); }

  double run(long count) override {
    if (queue_) return queue_->drive(case_.drive, count, [this] { step(); });
    return timed([&] {
      for (long i = 0; i < count; ++i) step();
    });
  }

 private:
  sluice::Stream stream() { return queue_ ? queue_->stream() : sluice::Stream(); }

  void open(int k) {
    const Neighbour ranks = neighbour(case_.context, k);
    const sluice::Tag tag = case_.tag + static_cast<sluice::Tag>(k);
    slots_.emplace_back(case_, 1);
    out_.push_back(case_.context.sender(ranks.to, tag, slots_.back().all(), {.stream = stream()}));
    slots_.emplace_back(case_, case_.depth);
    in_.push_back(
        case_.context.receiver(ranks.from, tag, slots_.back().all(), {.depth = case_.depth, .stream = stream()}));
  }

  void step() {
    plan_.start(stream());
    plan_.wait(stream());
    if (case_.options.touch) touch();
    plan_.release(stream());
  }

  void touch() {
    for (const sluice::Receiver& receiver : in_) {
      const std::byte* const payload = plan_.slot(receiver).data();
      if (queue_) {
        queue_->run([this, payload] { use(case_, payload); });
      } else {
        use(case_, payload);
      }
    }
  }

  const Case case_;
  std::unique_ptr<Queue> queue_;
  std::vector<Slots> slots_;
  std::vector<sluice::Sender> out_;
  std::vector<sluice::Receiver> in_;
  sluice::Plan plan_ = case_.context.plan();
};

}  // namespace

Neighbour neighbour(const sluice::Context& context, int k) {
  const int size = context.size();
  const int distance = 1 + k % (size - 1);
  return {(context.rank() + distance) % size, (context.rank() + size - distance) % size};
}

long items_of_plan(const Case& one_case, int neighbours) {
  constexpr long kItemsPerNeighbour = 4;  // put, wait, read, release, if the plan fuses none of them
  constexpr long kKernels = 5;            // to start (at most three), wait and release, for all neighbours together
  return replays(one_case.drive) ? kKernels * one_case.depth : kItemsPerNeighbour * neighbours;
}

Ours make_halo(const Case& one_case) { return described(std::make_unique<Halo>(one_case)); }

}  // namespace bench
