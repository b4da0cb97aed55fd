// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/model/prtt.hpp"

#include "apps/bench/harness/buffers.hpp"

#include <algorithm>
#include <cstring>

namespace bench {
namespace {

constexpr std::size_t kAnswer = 8;
// Longer than a message is under way, and than a train.
constexpr double kPrttPauseNs = 20e3;
constexpr double kTrainNs = 200e3;

void pause(double ns) {
  for (const double end = now_ns() + ns; now_ns() < end;) {
  }
}

class TrainOfMessages : public Contender {
 public:
  TrainOfMessages(const Workload& workload, Train train, int messages)
      : workload_(workload), train_(train), messages_(messages),
        memory_(workload.context.allocate(source_bytes() * static_cast<std::size_t>(messages + 2) + 2 * kAnswer)) {
    const bool sends = workload.first != (train == Train::receives);
    const sluice::Slice slots = memory_.slice(0, bytes() * static_cast<std::size_t>(messages));
    const sluice::Slice source = memory_.slice(source_bytes() * static_cast<std::size_t>(messages), bytes());
    const sluice::Slice answer = memory_.slice(source_bytes() * static_cast<std::size_t>(messages + 2), kAnswer);
    sluice::Context& context = workload_.context;
    const sluice::Tag tag = workload.tag;
    target_ = memory_.slice(source_bytes() * static_cast<std::size_t>(messages + 1), bytes());
    sends_ = sends;
    if (sends) {
      out_ = context.sender(workload.peer, tag, source);
      in_ = context.receiver(workload.peer, tag + 1, answer);
    } else {
      out_ = context.sender(workload.peer, tag + 1, answer);
      in_ = context.receiver(workload.peer, tag, slots, {.depth = messages});
    }
    out_.wait_connected();
    in_.wait_connected();
  }

  std::string describe() const { return out_.describe(); }

  double run(long count) override {
    double taken = 0;
    for (long i = 0; i < count; ++i) taken += sends_ ? send_all() : receive_all();
    return taken;
  }

 private:
  std::size_t bytes() const { return workload_.bytes; }
  /// Each on lines of its own.
  std::size_t source_bytes() const { return whole_pages(bytes()); }

  double send_all() {
    const double begin = now_ns();
    double work = 0;
    for (int i = 0; i < messages_; ++i) {
      const double before = train_ == Train::puts ? now_ns() : 0;
      out_.put({}, 0, bytes());
      if (train_ != Train::puts) continue;
      work += now_ns() - before;
      pause(kPrttPauseNs);
    }
    in_.wait({});
    in_.release({});
    return train_ == Train::puts ? std::max(0.0, work - messages_ * clock_ns()) : now_ns() - begin;
  }

  double receive_all() {
    if (train_ == Train::receives) pause(kTrainNs);
    const double begin = now_ns();
    for (int i = 0; i < messages_; ++i) {
      const sluice::Slice landed = in_.wait({});
      use(landed);
      in_.release({});
    }
    const double taken = now_ns() - begin;
    out_.put({}, 0, kAnswer);
    return taken;
  }

  void use(const sluice::Slice& landed) {
    if (train_ == Train::copied) std::memcpy(target_.data(), landed.data(), bytes());
    if (train_ != Train::combined) return;
    auto* const sum = reinterpret_cast<double*>(target_.data());
    const auto* const from = reinterpret_cast<const double*>(landed.data());
    for (std::size_t i = 0; i < bytes() / sizeof(double); ++i) sum[i] += from[i];
    keep(sum[0]);
  }

  /// Returns the time of two looks at the clock.
  static double clock_ns() {
    constexpr long kLooks = 1000;
    static const double ns = timed_steps(kLooks, [] { keep(now_ns()); }) / kLooks;
    return ns;
  }

  const Workload workload_;
  const Train train_;
  const int messages_;
  bool sends_ = false;
  sluice::Memory memory_;
  sluice::Slice target_;
  sluice::Sender out_;
  sluice::Receiver in_;
};

}  // namespace

Prtt make_prtt(const Workload& workload, Train train, int messages) {
  auto made = std::make_unique<TrainOfMessages>(workload, train, messages);
  std::string description = made->describe();
  return {std::move(made), std::move(description)};
}

}  // namespace bench
