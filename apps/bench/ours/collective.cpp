// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/uneven.hpp"
#include "apps/bench/ours/ours.hpp"

#include <array>
#include <string>
#include <vector>

namespace bench {
namespace {

class OurCollective : public Contender {
 public:
  explicit OurCollective(const Workload& workload)
      : workload_(workload),
        memory_(workload.context.allocate(2 * all_bytes())), collectives_{make(0), make(workload.context.size() - 1)} {
    if (workload_.drive != Drive::in_order) queue_ = make_queue(workload_, kItems);
    for (auto& collective : collectives_) collective.wait_connected();
  }

  std::string describe() const { return collectives_[0].describe(); }

  double run(long count) override {
    if (queue_) return queue_->drive(workload_.drive, count, [this] { step(queue_->stream()); });
    return timed_steps(count, [this] { step({}); });
  }

 private:
  static constexpr long kItems = 64;  // at most, of a step

  std::size_t all_bytes() const {
    return std::max<std::size_t>(64, (workload_.collective == Collective::alltoallv ? 2 : 1) * workload_.bytes *
                                         static_cast<std::size_t>(workload_.context.size()));
  }

  sluice::Collective make(sluice::Rank root) {
    sluice::Context context = workload_.context;
    const std::string name = "bench " + std::to_string(workload_.tag) + " of " + std::to_string(root);
    const std::size_t bytes = workload_.bytes;
    const auto all = bytes * static_cast<std::size_t>(context.size());
    const sluice::Slice from = memory_.slice(0, bytes);
    const sluice::Slice to = memory_.slice(all_bytes(), bytes);
    switch (workload_.collective) {
      case Collective::barrier: return sluice::barrier(context, name);
      case Collective::allreduce:
        return sluice::allreduce(context, name, sluice::Op::sum, sluice::Number::float64, from, to);
      case Collective::broadcast: return sluice::broadcast(context, name, from, root);
      case Collective::allgather: return sluice::allgather(context, name, from, memory_.slice(all_bytes(), all));
      case Collective::alltoallv: return make_uneven(context, name);
      case Collective::alltoall: break;
    }
    return sluice::alltoall(context, name, memory_.slice(0, all), memory_.slice(all_bytes(), all));
  }

  sluice::Collective make_uneven(sluice::Context& context, const std::string& name) {
    std::vector<sluice::Block> from;
    std::vector<sluice::Block> to;
    const sluice::Rank own = context.rank();
    for (sluice::Rank rank = 0; rank < context.size(); ++rank) {
      const std::size_t mean = workload_.bytes;
      from.push_back({rank, 0, memory_.slice(uneven_sent(own, rank, mean), uneven_bytes(own, rank, mean))});
      to.push_back(
          {rank, 0, memory_.slice(all_bytes() + uneven_received(own, rank, mean), uneven_bytes(rank, own, mean))});
    }
    return sluice::alltoall(context, name, from, to);
  }

  void step(sluice::Stream stream) {
    // A broadcast has another root each time: so no rank runs ahead of the others.
    sluice::Collective& next = collectives_[workload_.collective == Collective::broadcast ? turn_++ % 2 : 0];
    next.start(stream);
    next.wait(stream);
  }

  const Workload workload_;
  sluice::Memory memory_;
  std::unique_ptr<Queue> queue_;
  std::array<sluice::Collective, 2> collectives_;
  std::size_t turn_ = 0;
};

}  // namespace

Ours make_collective(const Workload& workload) { return described(std::make_unique<OurCollective>(workload)); }

}  // namespace bench
