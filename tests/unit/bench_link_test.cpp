// SPDX-License-Identifier: Apache-2.0
// The contenders of rivals that write into the peer's memory themselves, on a link that checks its use.
#include "apps/bench/rivals/link_contenders.hpp"

#include <sluice/run.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

namespace bench {
namespace {

constexpr std::size_t kMaxSlots = 64;

/// One direction between two ranks of this process.
struct Wire {
  std::array<std::atomic<std::uint64_t>, kMaxSlots> slots{};  // 0: free, else the number of its message + 1
  std::array<std::atomic<std::uint64_t>, 2> signals{};
  std::atomic<int> received{0};
};

/// Both directions: the messages of rank 0 and those of rank 1.
struct Wires {
  std::array<Wire, 2> from_rank;
  std::atomic<int> faults{0};
};

/// A put that overwrites a message for which no credit was sent is a fault, which ends both ranks. A message is found
/// in its slot only, so nothing depends on the order of messages.
class CheckedLink {
 public:
  CheckedLink(const Workload& workload, const LinkLayout& layout, Wires* wires)
      : layout_(layout), wires_(*wires), out_(wires->from_rank[workload.first ? 0 : 1]),
        in_(wires->from_rank[workload.first ? 1 : 0]) {}

  std::byte* source(Message) { return nullptr; }
  void put(Message message) {
    const bool was_free = out_.slots.at(message.slot).exchange(message.number + 1) == 0;
    if (!was_free || message.slot != message.number % layout_.slots) ++wires_.faults;
  }
  const std::byte* await(Message message) {
    wait_until([&] { return in_.slots.at(message.slot).load() == message.number + 1; });
    ++in_.received;
    read_.push_back(message.slot);
    if (layout_.signals == 0) free_slots();
    return nullptr;
  }
  void signal(Signal which) {
    if (which == Signal::credit) free_slots();
    ++out_.signals.at(static_cast<std::size_t>(which));
  }
  std::uint64_t await(Signal which, std::uint64_t least) {
    const auto& count = in_.signals.at(static_cast<std::size_t>(which));
    wait_until([&] { return count.load() >= least; });
    return count.load();
  }
  void finish_run() {}

 private:
  template <class Condition>
  void wait_until(Condition condition) const {
    while (!condition()) {
      if (wires_.faults > 0) throw std::runtime_error("a message was overwritten");
      std::this_thread::yield();
    }
  }
  void free_slots() {
    for (const std::size_t slot : read_) in_.slots.at(slot).store(0);
    read_.clear();
  }

  const LinkLayout layout_;
  Wires& wires_;
  Wire& out_;
  Wire& in_;
  std::vector<std::size_t> read_;  // slots for which no credit was sent
};

// Runs a contender on two ranks, several times.
template <class Made>
void run_pair(int depth, int window, long count, Wires& wires) {
  const Options options;
  const auto body = [&](sluice::Context& context) {
    Workload workload{context, options};
    workload.first = context.rank() == 0;
    workload.depth = depth;
    workload.window = window;
    Made contender(workload, &wires);
    for (int i = 0; i < 3; ++i) EXPECT_GT(contender.run(count), 0);
  };
  EXPECT_EQ(sluice::run_threads(2, body), 0);
}

TEST(LinkFlood, overwrites_no_message_without_a_credit) {
  struct Ring {
    int depth;
    int window;
  };
  for (const Ring ring : {Ring{1, 1}, Ring{1, 5}, Ring{2, 7}, Ring{3, 64}, Ring{8, 64}, Ring{64, 9}}) {
    Wires wires;
    run_pair<LinkFlood<CheckedLink>>(ring.depth, ring.window, 20, wires);
    EXPECT_EQ(wires.faults, 0) << ring.depth << " " << ring.window;
    EXPECT_EQ(wires.from_rank[0].received, 3 * 20 * ring.window);
    EXPECT_EQ(wires.from_rank[1].received, 0);
  }
}

TEST(LinkPingPong, answers_each_message) {
  Wires wires;
  run_pair<LinkPingPong<CheckedLink>>(8, 1, 20, wires);
  EXPECT_EQ(wires.faults, 0);
  for (const Wire& wire : wires.from_rank) EXPECT_EQ(wire.received, 3 * 20);
}

}  // namespace
}  // namespace bench
