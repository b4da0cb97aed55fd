// SPDX-License-Identifier: Apache-2.0
// The floor that promises what a channel does.
#include "apps/bench/rivals/protocol_floor.hpp"

#include <sluice/run.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace bench {
namespace {

constexpr std::size_t kBytes = 2048;
constexpr int kMessages = 300;

std::byte stamp(int message) { return static_cast<std::byte>(message % 251 + 1); }

// Runs two ranks: the first one puts as fast as it can, the other one sees whole messages alone, in their order.
int wrong_messages(int depth) {
  std::atomic<int> wrong{0};
  const Options options;
  const int code = sluice::run_threads(2, [&](sluice::Context& context) {
    Workload workload{context, options};
    workload.peer = 1 - context.rank();
    workload.first = context.rank() == 0;
    workload.bytes = kBytes;
    workload.depth = depth;
    Protocol protocol(workload);
    for (int message = 0; message < kMessages; ++message) {
      if (workload.first) {
        std::fill_n(protocol.source(), kBytes, stamp(message));
        protocol.put(kBytes);
      } else {
        const std::byte* const payload = protocol.wait();
        if (message % 30 == 0) std::this_thread::yield();
        if (std::count(payload, payload + kBytes, stamp(message)) != kBytes) ++wrong;
        protocol.release();
      }
    }
    // The answer, so that neither rank ends before the other has read.
    if (workload.first) {
      protocol.wait();
    } else {
      protocol.put(0);
    }
  });
  EXPECT_EQ(code, 0);
  return wrong;
}

TEST(ProtocolFloor, overwrites_no_message_before_its_release) {
  for (const int depth : {1, 2, 7}) EXPECT_EQ(wrong_messages(depth), 0) << depth;
}

}  // namespace
}  // namespace bench
