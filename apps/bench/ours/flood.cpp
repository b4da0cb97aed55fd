// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/ours/ours.hpp"

#include <memory>

namespace bench {
namespace {

// With --touch, a message is waited for, read and released.
constexpr long kItemsPerMessage = 3;
constexpr long kItemsPerAnswer = 2;

class Flood : public Contender {
 public:
  explicit Flood(const Case& one_case)
      : case_(one_case), messages_(one_case, one_case.depth), answers_(allocate(one_case, 1).all()) {
    if (case_.drive != Drive::in_order) {
      queue_ = make_queue(case_, kItemsPerMessage * case_.window + kItemsPerAnswer);
      stream_ = queue_->stream();
    }
    sluice::Context& context = case_.context;
    const sluice::Tag tag = case_.tag;
    const sluice::Tag answer_tag = tag + 1;
    const sluice::ChannelOptions slots{.depth = case_.depth, .stream = stream_};
    const sluice::ChannelOptions one{.stream = stream_};
    if (case_.first) {
      out_ = context.sender(case_.peer, tag, messages_.all(), slots);
      in_ = context.receiver(case_.peer, answer_tag, answers_, one);
    } else {
      out_ = context.sender(case_.peer, answer_tag, answers_, one);
      in_ = context.receiver(case_.peer, tag, messages_.all(), slots);
    }
    out_.wait_connected();
    in_.wait_connected();
  }

  std::string describe() const { return out_.describe(); }

  double run(long count) override {
    if (queue_) return queue_->drive(case_.drive, count, [this] { window(); });
    return timed([&] {
      for (long i = 0; i < count; ++i) window();
    });
  }

 private:
  void window() {
    if (case_.first) {
      for (int i = 0; i < case_.window; ++i) out_.put(stream_, 0, case_.bytes);
      in_.wait(stream_);
      in_.release(stream_);
    } else {
      for (int i = 0; i < case_.window; ++i) receive();
      out_.put(stream_, 0, 0);
    }
  }

  void receive() {
    const std::byte* const payload = in_.wait(stream_).data();
    if (!queue_) {
      use(case_, payload);
    } else if (case_.options.touch) {
      queue_->run([this, payload] { use(case_, payload); });
    }
    in_.release(stream_);
  }

  const Case case_;
  std::unique_ptr<Queue> queue_;
  sluice::Stream stream_;
  Slots messages_;
  sluice::Slice answers_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

}  // namespace

Ours make_flood(const Case& one_case) { return described(std::make_unique<Flood>(one_case)); }

}  // namespace bench
