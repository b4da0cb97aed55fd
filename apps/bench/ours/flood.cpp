// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/ours/received.hpp"

#include <algorithm>
#include <memory>

namespace bench {
namespace {

// The items (see Queue) of a received message, with --touch: wait, read, release.
constexpr long kItemsPerMessage = 3;
constexpr long kItemsPerAnswer = 2;

/// Windows of messages, by the verbs of one epoch, or by those of several.
class Flood : public Contender {
 public:
  /// `batch`: how many messages a put has; 1: the verbs of one epoch.
  Flood(const Workload& workload, int batch)
      : workload_(workload), batch_(batch), messages_(workload, workload.depth), answers_(allocate(workload, 1).all()) {
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
      put_all();
      in_.wait(stream_);
      in_.release(stream_);
    } else {
      receive_all();
      out_.put(stream_, 0, 0);
    }
  }

  void put_all() {
    if (batch_ > 1) {
      for (int left = workload_.window; left > 0; left -= batch_) out_.put(stream_, count_of(left));
    } else {
      for (int i = 0; i < workload_.window; ++i) out_.put(stream_, 0, workload_.bytes);
    }
  }

  void receive_all() {
    if (batch_ == 1) {
      for (int i = 0; i < workload_.window; ++i) {
        read(workload_, queue_.get(), in_.wait(stream_).data());
        in_.release(stream_);
      }
    } else if (queue_) {
      for (int left = workload_.window; left > 0; left -= batch_) read_and_release(in_.wait(stream_, count_of(left)));
    } else {
      for (std::size_t left = static_cast<std::size_t>(workload_.window); left > 0;) {
        const sluice::Batch landed = in_.wait_some(sluice::kForever);
        read_and_release(landed);
        left -= landed.size();
      }
    }
  }

  void read_and_release(const sluice::Batch& batch) {
    for (const sluice::Slice slot : batch) read(workload_, queue_.get(), slot.data());
    in_.release(stream_, batch.size());
  }

  std::size_t count_of(int left) const { return static_cast<std::size_t>(std::min(batch_, left)); }

  const Workload workload_;
  const int batch_;
  std::unique_ptr<Queue> queue_;
  sluice::Stream stream_;
  Slots messages_;
  sluice::Slice answers_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

}  // namespace

Ours make_flood(const Workload& workload) { return described(std::make_unique<Flood>(workload, 1)); }

Ours make_batch_flood(const Workload& workload) {
  return described(std::make_unique<Flood>(workload, std::max(2, workload.depth / 2)));
}

}  // namespace bench
