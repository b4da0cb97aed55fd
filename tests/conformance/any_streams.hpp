// SPDX-License-Identifier: Apache-2.0
// Common to the tests of WaitAny on streams: rank 0 waits for whichever of the other ranks' channels comes first.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tests/conformance/cases.hpp"

namespace sluice::test {

inline constexpr std::size_t kAnyTurn = 2;  // on the board: the step whose sender puts

/// Rank 0: a channel from each other rank; receiver i is of rank i + 1.
struct AnyWaiter {
  AnyWaiter(Context& in, const Case& one, std::string_view contents = {})
      : context(in), order(one.cuda ? one : on_host(one)) {
    for (Rank rank = 1; rank < in.size(); ++rank) {
      const Buffer& buffer = *buffers.emplace_back(std::make_unique<Buffer>(in, one));
      receivers.push_back(in.receiver(rank, kTag, buffer.all(), {.depth = one.depth, .contents = contents}));
    }
    any = WaitAny(receivers);
  }
  Stream stream() { return order.stream(); }
  void synchronize() { context.synchronize(stream()); }

  Context& context;
  test::Order order;  // destroyed after what is used on it
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<Receiver> receivers;
  WaitAny any;
};

/// Another rank.
struct AnySender {
  AnySender(Context& in, const Case& one, std::string_view contents = {})
      : rank(in.rank()), order(one), buffer(in, one),
        sender(in.sender(0, kTag, buffer.all(), {.depth = one.depth, .contents = contents})) {}
  void put() {
    const Stamp stamp{rank, kTag, sender.epoch() + 1};
    order.run([slot = sender.acquire(order.stream()), stamp] { fill(bytes_of(slot), stamp); });
    sender.put(order.stream());
  }

  const Rank rank;
  test::Order order;
  const Buffer buffer;
  Sender sender;
};

}  // namespace sluice::test
