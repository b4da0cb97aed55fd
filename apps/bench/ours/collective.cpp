// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/collective.hpp"
#include "apps/bench/ours/ours.hpp"

#include <array>
#include <string>
#include <vector>

namespace bench {
namespace {

class OurCollective : public Contender {
 public:
  explicit OurCollective(const Workload& workload)
      : workload_(workload), given_(allocate_some(bytes_of(workload).given)),
        got_(allocate_some(bytes_of(workload).got)), collectives_{make(0), make(workload.context.size() - 1)} {
    if (workload_.drive != Drive::in_order) queue_ = make_queue(workload_, kItems);
    for (auto& collective : collectives_) collective.wait_connected();
  }

  std::string describe() const { return collectives_[0].describe(); }

  double run(long count) override {
    if (queue_) return queue_->drive(workload_.drive, count, [this] { step(queue_->stream()); });
    return timed_steps(count, [this] { step({}); });
  }
  long period() const override { return period_of(workload_); }

 private:
  static constexpr long kItems = 64;  // at most, of a step

  sluice::Memory allocate_some(std::size_t bytes) {
    return workload_.context.allocate(std::max<std::size_t>(64, bytes));
  }

  sluice::Collective make(sluice::Rank root) {
    sluice::Context context = workload_.context;
    const std::string name = "bench " + std::to_string(workload_.tag) + " of " + std::to_string(root);
    const sluice::Slice from = given_.slice(0, bytes_of(workload_).given);
    const sluice::Slice to = got_.slice(0, bytes_of(workload_).got);
    switch (workload_.collective) {
      case Collective::barrier: return sluice::barrier(context, name);
      case Collective::allreduce:
        return sluice::allreduce(context, name, sluice::Op::sum, sluice::Number::float64, from, to);
      case Collective::broadcast: return sluice::broadcast(context, name, from, root);
      case Collective::allgather: return sluice::allgather(context, name, from, to);
      case Collective::alltoallv: return make_uneven(context, name);
      case Collective::alltoall: break;
    }
    return sluice::alltoall(context, name, from, to);
  }

  sluice::Collective make_uneven(sluice::Context& context, const std::string& name) {
    std::vector<sluice::Block> from;
    std::vector<sluice::Block> to;
    const sluice::Rank own = context.rank();
    for (sluice::Rank rank = 0; rank < context.size(); ++rank) {
      const std::size_t mean = workload_.bytes;
      from.push_back({rank, 0, given_.slice(uneven_sent(own, rank, mean), uneven_bytes(own, rank, mean))});
      to.push_back({rank, 0, got_.slice(uneven_received(own, rank, mean), uneven_bytes(rank, own, mean))});
    }
    return sluice::alltoall(context, name, from, to);
  }

  void step(sluice::Stream stream) {
    const bool broadcast = workload_.collective == Collective::broadcast;
    sluice::Collective& next = collectives_[broadcast && root_of(workload_, turn_) != 0 ? 1 : 0];
    compute(workload_, given_.data(), turn_);
    next.start(stream);
    next.wait(stream);
    read(workload_, (broadcast ? given_ : got_).data(), turn_);
    ++turn_;
  }

  const Workload workload_;
  sluice::Memory given_;
  sluice::Memory got_;
  std::unique_ptr<Queue> queue_;
  std::array<sluice::Collective, 2> collectives_;
  unsigned turn_ = 0;
};

}  // namespace

Ours make_collective(const Workload& workload) { return described(std::make_unique<OurCollective>(workload)); }

}  // namespace bench
