// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/model/prtt.hpp"

#include "apps/bench/harness/buffers.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

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
    target_ = memory_.slice(source_bytes() * static_cast<std::size_t>(messages + 1), bytes());
    sends_ = sends;
    sluice::Context& context = workload_.context;
    const int channels = train == Train::receives ? messages : 1;
    const int depth = messages / channels;
    for (int channel = 0; channel < channels; ++channel) {
      const sluice::Tag tag = workload.tag + 1 + channel;
      const std::size_t part = bytes() * static_cast<std::size_t>(depth);
      if (sends)
        out_.push_back(context.sender(workload.peer, tag, source));
      else
        in_.push_back(context.receiver(workload.peer, tag, slots.slice(part * static_cast<std::size_t>(channel), part),
                                       {.depth = depth}));
    }
    if (sends)
      in_.push_back(context.receiver(workload.peer, workload.tag, answer));
    else
      out_.push_back(context.sender(workload.peer, workload.tag, answer));
    for (sluice::Sender& out : out_) out.wait_connected();
    for (sluice::Receiver& in : in_) in.wait_connected();
  }

  std::string describe() const { return out_.front().describe(); }

  double run(long count) override {
    if (is_timed_apart()) {
      double taken = 0;
      for (long i = 0; i < count; ++i) taken += sends_ ? work_of_puts() : work_of_receiving();
      return taken;
    }
    // One look at the clock would be a large part of a round trip.
    return timed_steps(count, [this] { sends_ ? send_all() : receive_all(); });
  }

 private:
  std::size_t bytes() const { return workload_.bytes; }
  /// Each on lines of its own.
  std::size_t source_bytes() const { return whole_pages(bytes()); }

  template <class Ends>
  static auto& channel_of(Ends& ends, int message) {
    return ends[static_cast<std::size_t>(message) % ends.size()];
  }

  bool is_timed_apart() const { return train_ == (sends_ ? Train::puts : Train::receives); }

  void send_all() {
    for (int i = 0; i < messages_; ++i) channel_of(out_, i).put({}, 0, bytes());
    await_answer();
  }

  double work_of_puts() {
    double work = 0;
    for (int i = 0; i < messages_; ++i) {
      const double before = now_ns();
      channel_of(out_, i).put({}, 0, bytes());
      work += now_ns() - before;
      pause(kPrttPauseNs);
    }
    await_answer();
    return std::max(0.0, work - messages_ * clock_ns());
  }

  void await_answer() {
    in_.front().wait({});
    in_.front().release({});
  }

  void receive_all() {
    receive();
    out_.front().put({}, 0, kAnswer);
  }

  double work_of_receiving() {
    pause(kTrainNs);
    const double begin = now_ns();
    receive();
    const double taken = now_ns() - begin;
    out_.front().put({}, 0, kAnswer);
    return taken;
  }

  void receive() {
    for (int i = 0; i < messages_; ++i) {
      sluice::Receiver& in = channel_of(in_, i);
      use(in.wait({}));
      in.release({});
    }
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
  std::vector<sluice::Sender> out_;
  std::vector<sluice::Receiver> in_;
};

}  // namespace

Prtt make_prtt(const Workload& workload, Train train, int messages) {
  auto made = std::make_unique<TrainOfMessages>(workload, train, messages);
  std::string description = made->describe();
  return {std::move(made), std::move(description)};
}

}  // namespace bench
