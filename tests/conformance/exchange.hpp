// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "tests/conformance/gpu_cases.hpp"

namespace sluice::test {

/// One rank's half of an exchange with another, by a plan, whose every step can be captured: what is put and what is
/// expected is counted when it happens.
class Exchange {
  std::shared_ptr<GpuStream> stream_;  // first: the channels are used on it

 public:
  static constexpr Tag kExchangeTag = kTag + 70;  // beside the channel of a test

  /// By all ranks of the test at once: a GPU gives no memory behind a parked stream.
  Exchange(Context& context, const GpuCase& one, Rank other)
      : Exchange(context, one, other, std::make_unique<GpuStream>()) {}
  Exchange(Context& context, const GpuCase& one, Rank other, std::shared_ptr<GpuStream> on)
      : stream_(std::move(on)), stream(*stream_), context_(context), one_(one),
        source_(context, one.source, one.bytes * slots()), target_(context, one.target, one.bytes * slots()),
        bytes_(context.allocate(2 * one.bytes, Space::pinned)), other_(other) {
    sender = context.sender(other, kExchangeTag, source_.slice(), {.depth = one.depth});
    receiver = context.receiver(other, kExchangeTag, target_.slice(), {.depth = one.depth});
    plan = context.plan();
    plan.add(sender).add(receiver);
    board().meet(context);
    plan.commit(stream.stream());
  }

  void put() {
    const Slice filled = bytes_.slice(0, one_.bytes);
    plan.acquire(stream.stream());
    stream.run([this, filled] { fill(bytes_of(filled), {context_.rank(), kExchangeTag, ++put_}); });
    stream.copy(plan.slot(sender).data(), filled.data(), one_.bytes);
    plan.start(stream.stream());
  }
  void take() {
    const Slice seen = bytes_.slice(one_.bytes, one_.bytes);
    plan.wait(stream.stream());
    stream.copy(seen.data(), plan.slot(receiver).data(), one_.bytes);
    stream.run([this, seen] {
      const std::string wrong = difference(bytes_of(seen), {other_, kExchangeTag, ++taken_});
      if (looks) {
        EXPECT_EQ(wrong, "");
      }
    });
    plan.release(stream.stream());
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      put();
      take();
    }
  }
  GpuGraph captured_steps(int count) {
    return {stream, [&] { steps(count); }};
  }

  /// Epochs that were received.
  std::uint64_t taken() const { return taken_; }

  bool looks = true;  ///< at what it has taken; not where nothing comes any more
  GpuStream& stream;
  Sender sender;
  Receiver receiver;
  Plan plan;

 private:
  std::size_t slots() const { return static_cast<std::size_t>(one_.depth); }

  Context& context_;
  GpuCase one_;
  Piece source_;
  Piece target_;
  Memory bytes_;
  Rank other_;
  std::uint64_t put_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace sluice::test
