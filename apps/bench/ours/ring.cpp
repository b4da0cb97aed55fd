// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/ours/received.hpp"

#include <memory>

namespace bench {
namespace {

class Ring : public Contender {
 public:
  explicit Ring(const Workload& workload)
      : workload_(workload), queue_(workload.drive == Drive::in_order ? nullptr : make_queue(workload, kItemsPerStep)),
        stream_(queue_ ? queue_->stream() : sluice::Stream()), source_(workload, 1), target_(workload, workload.depth),
        out_(workload_.context.sender(neighbour(workload.context, 0).to, workload.tag, source_.all(),
                                      {.stream = stream_})),
        in_(workload_.context.receiver(neighbour(workload.context, 0).from, workload.tag, target_.all(),
                                       {.depth = workload.depth, .stream = stream_})) {
    out_.wait_connected();
    in_.wait_connected();
  }
  std::string describe() const { return out_.describe(); }

  double run(long count) override {
    if (queue_) return queue_->drive(workload_.drive, count, [this] { step(); });
    return timed_steps(count, [this] { step(); });
  }

 private:
  void step() {
    out_.put(stream_, 0, workload_.bytes);
    read(workload_, queue_.get(), in_.wait(stream_).data());
    in_.release(stream_);
  }

  const Workload workload_;
  std::unique_ptr<Queue> queue_;
  sluice::Stream stream_;
  Slots source_;
  Slots target_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

}  // namespace

Ours make_ring(const Workload& workload) { return described(std::make_unique<Ring>(workload)); }

}  // namespace bench
