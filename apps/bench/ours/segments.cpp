// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"
#include "apps/bench/ours/received.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace bench {
namespace {

/// Windows of messages, each of which is a range of a segmented channel. In program order.
class SegmentFlood : public Contender {
 public:
  explicit SegmentFlood(const Workload& workload)
      : workload_(workload), messages_(workload, workload.depth), answers_(allocate(workload, 1).all()) {
    sluice::Context& context = workload_.context;
    const sluice::Tag tag = workload_.tag;
    if (workload_.first) {
      out_ = sluice::SegmentSender(context, workload_.peer, tag, messages_.all());
      answer_in_ = context.receiver(workload_.peer, tag + 1, answers_);
      out_.wait_connected();
      answer_in_.wait_connected();
    } else {
      in_ = sluice::SegmentReceiver(context, workload_.peer, tag, messages_.all());
      answer_out_ = context.sender(workload_.peer, tag + 1, answers_);
      in_.wait_connected();
      answer_out_.wait_connected();
    }
  }

  /// Describes one lane, in the words of a channel.
  std::string describe() const {
    if (!workload_.first) return answer_out_.describe();
    const std::string of_segments = out_.describe();
    return of_segments.substr(of_segments.find('\''));
  }

  double run(long count) override {
    return timed_steps(count, [this] { window(); });
  }

 private:
  std::size_t place(int message) const { return static_cast<std::size_t>(message % workload_.depth) * workload_.bytes; }

  void window() {
    if (workload_.first) {
      for (int i = 0; i < workload_.window; ++i) out_.i_put(place(i), workload_.bytes);
      answer_in_.wait(sluice::Stream{});
      answer_in_.release(sluice::Stream{});
      return;
    }
    for (int i = 0; i < workload_.window; ++i) {
      read(workload_, nullptr, in_.wait(place(i), workload_.bytes).data());
      in_.release(place(i), workload_.bytes);
    }
    answer_out_.put(sluice::Stream{}, 0, 0);
  }

  const Workload workload_;
  Slots messages_;
  sluice::Slice answers_;
  sluice::SegmentSender out_;
  sluice::SegmentReceiver in_;
  sluice::Sender answer_out_;
  sluice::Receiver answer_in_;
};

}  // namespace

Ours make_segment_flood(const Workload& workload) { return described(std::make_unique<SegmentFlood>(workload)); }

}  // namespace bench
