// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/ours/receive.hpp"

#include <memory>

namespace bench {
namespace {

// The items (see Queue) of a received message, with --touch: wait, read, release.
constexpr long kItemsPerMessage = 3;
constexpr long kItemsPerAnswer = 2;

class Flood : public Contender {
 public:
  explicit Flood(const Workload& workload)
      : workload_(workload), messages_(workload, workload.depth), answers_(allocate(workload, 1).all()) {
    if (workload_.drive != Drive::in_order) {
      queue_ = make_queue(workload_, kItemsPerMessage * workload_.window + kItemsPerAnswer);
      stream_ = queue_->stream();
    }
    sluice::Context& context = workload_.context;
    const sluice::Tag tag = workload_.tag;
    const sluice::Tag answer_tag = tag + 1;
    const sluice::ChannelOptions slots{.depth = workload_.depth, .stream = stream_};
    const sluice::ChannelOptions one{.stream = stream_};
    if (workload_.first) {
      out_ = context.sender(workload_.peer, tag, messages_.all(), slots);
      in_ = context.receiver(workload_.peer, answer_tag, answers_, one);
    } else {
      out_ = context.sender(workload_.peer, answer_tag, answers_, one);
      in_ = context.receiver(workload_.peer, tag, messages_.all(), slots);
    }
    out_.wait_connected();
    in_.wait_connected();
  }

  std::string describe() const { return out_.describe(); }

  double run(long count) override {
    if (queue_) return queue_->drive(workload_.drive, count, [this] { window(); });
    return timed_steps(count, [this] { window(); });
  }

 private:
  void window() {
    if (workload_.first) {
      for (int i = 0; i < workload_.window; ++i) out_.put(stream_, 0, workload_.bytes);
      in_.wait(stream_);
      in_.release(stream_);
    } else {
      for (int i = 0; i < workload_.window; ++i) receive(workload_, queue_.get(), stream_, in_);
      out_.put(stream_, 0, 0);
    }
  }

  const Workload workload_;
  std::unique_ptr<Queue> queue_;
  sluice::Stream stream_;
  Slots messages_;
  sluice::Slice answers_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

}  // namespace

Ours make_flood(const Workload& workload) { return described(std::make_unique<Flood>(workload)); }

}  // namespace bench
