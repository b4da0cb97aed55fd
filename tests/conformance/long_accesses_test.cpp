// SPDX-License-Identifier: Apache-2.0
// Accesses to windows with more bytes than a network takes in one message.
#include <signal.h>

#include <algorithm>

#include "tests/conformance/windows.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

/// Those of emucxi are made short, so that an access has more of them than are under way at a time.
constexpr std::size_t kShortMessage = 65536;
constexpr std::size_t kMessageOfSockets = 8 << 20;

Peers peers_of(const Case& one) {
  Peers peers = one.peers();
  peers.environment = {"EMUCXI_MESSAGE=" + std::to_string(kShortMessage)};
  return peers;
}

/// Of an access: several messages, the last of which is short.
std::size_t long_bytes(const Case& one) {
  return one.ground.name == "ofi_sockets" ? 2 * kMessageOfSockets + 13 : 6 * kShortMessage + 13;
}

class LongAccesses : public testing::TestWithParam<Case> {
 protected:
  struct Side : WindowSide {
    Side(Context& in, std::size_t window_bytes, std::size_t local_bytes)
        : WindowSide(in, GetParam(), window_bytes, local_bytes, 2) {}
  };
};

TEST_P(LongAccesses, get_every_byte_of_what_was_put_and_no_other) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const std::size_t bytes = long_bytes(GetParam());
    constexpr std::size_t kGap = 64;
    const auto ranks = static_cast<std::size_t>(context.size());
    Side side(context, ranks * (bytes + kGap), bytes + kGap);
    const auto mine = static_cast<std::size_t>(context.rank());
    fill(side.local.bytes().first(bytes), {context.rank(), kTag, 1});
    side.target.put(side.stream(), side.piece(0, bytes), mine * (bytes + kGap));
    side.meet();
    for (std::size_t rank = 0; context.rank() == 0 && rank < ranks; ++rank) {
      const auto there = side.memory.bytes().subspan(rank * (bytes + kGap), bytes + kGap);
      EXPECT_EQ(difference(there.first(bytes), {static_cast<Rank>(rank), kTag, 1}), "");
      EXPECT_EQ(unlike_poison(there.subspan(bytes)), "");
    }
    poison(side.local.bytes());
    const std::size_t other = (mine + 1) % ranks;
    side.target.get(side.stream(), side.piece(0, bytes), other * (bytes + kGap));
    side.flush();
    EXPECT_EQ(difference(side.local.bytes().first(bytes), {static_cast<Rank>(other), kTag, 1}), "");
    EXPECT_EQ(unlike_poison(side.local.bytes().subspan(bytes)), "");
    board().meet(context);
  });
}

TEST_P(LongAccesses, are_counted_once_after_their_last_byte) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const std::size_t bytes = long_bytes(GetParam());
    constexpr std::uint64_t kRoundsOfLong = 3;
    Side side(context, bytes, bytes);
    for (std::uint64_t round = 1; round <= kRoundsOfLong; ++round) {
      if (context.rank() == 1) {
        side.order.run([&, round] { fill(side.local.bytes(), {1, kTag, round}); });
        side.target.put_notify(side.stream(), side.local.all(), 0, 0);
        side.target.get_notify(side.stream(), side.local.all(), 0, 1);
      } else {
        side.window.wait(side.stream(), 0, round);
        side.order.run([&, round] { EXPECT_EQ(difference(side.memory.bytes(), {1, kTag, round}), ""); });
        side.window.wait(side.stream(), 1, round);
        side.order.run([&] { poison(side.memory.bytes()); });
      }
      side.meet();
      if (context.rank() == 1) {
        EXPECT_EQ(difference(side.local.bytes(), {1, kTag, round}), "");
      }
    }
    if (context.rank() == 0) {
      EXPECT_EQ(side.window.count(0), kRoundsOfLong);
      EXPECT_EQ(side.window.count(1), kRoundsOfLong);
    }
    board().meet(context);
  });
}

TEST_P(LongAccesses, give_one_notice_each) {
  if (GetParam().cuda) return;
  run_peers(peers_of(GetParam()), [](Context& context) {
    const std::size_t bytes = long_bytes(GetParam());
    Side side(context, bytes, bytes);
    if (context.rank() == 1) {
      fill(side.local.bytes(), {1, kTag, 1});
      side.target.put_tagged(side.stream(), side.local.all(), 0, 5);
      side.target.get_tagged(side.stream(), side.local.all(), 0, 6);
    } else {
      for (const Tag tag : {5U, 6U}) {
        const auto notice = side.window.match(kAnySource, kAnyTag, 20s);
        ASSERT_TRUE(notice);
        EXPECT_EQ(notice->tag, tag);
        EXPECT_EQ(notice->bytes, bytes);
        EXPECT_EQ(difference(side.memory.bytes(), {1, kTag, 1}), "");
      }
    }
    side.meet();
    if (context.rank() == 0) {
      EXPECT_FALSE(side.window.match(kAnySource, kAnyTag, 0ns));
    }
    board().meet(context);
  });
}

/// Closing leaves pieces out that have not left, and waits for those that have.
TEST_P(LongAccesses, touch_no_window_that_has_been_closed) {
  if (!GetParam().host) return;
  run_peers(with_untold(peers_of(GetParam())), [](Context& context) {
    const Case& one = GetParam();
    const std::size_t bytes = long_bytes(one);
    const Buffer memory(context, one, bytes);
    if (context.rank() == 0) {
      Window window = context.window(kWindow, memory.all());
      board().await(kGo, 1);
      window.close();
      poison(memory.bytes());
      board().meet(context);
      EXPECT_EQ(unlike_poison(memory.bytes()), "");
    } else {
      HostStream host;
      const Stream stream = Stream::host(host);
      Target target = context.target(0, kWindow);
      target.wait_connected();
      fill(memory.bytes(), {1, kTag, 1});
      host.run([] { board().set(kGo, 1); });
      expect_code(Code::closed, [&] {
        for (;;) {
          for (int i = 0; i < 8; ++i) target.put(stream, memory.all(), 0);
          target.flush(stream);
          context.synchronize(stream);
        }
      });
      board().meet(context);
    }
    board().meet(context);
  });
}

class LostLongAccesses : public WithKills {};

TEST_P(LostLongAccesses, end_with_their_owner) {
  Peers peers = peers_of(GetParam());
  peers.keep_going = peers.untold = true;
  peers.limit = 60s;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    const std::size_t bytes = long_bytes(one);
    test::Order order(one);
    const Buffer memory(context, one, bytes);
    if (context.rank() == 1) {
      const Window window = context.window(kWindow, memory.all());
      die_when_ready();
    }
    Target target = context.target(1, kWindow);
    target.wait_connected();
    expect_loss_of_rank_1(context, [&] {
      for (int i = 0;; ++i) {
        if (i == 3) board().set(kReady, 1);
        target.put(order.stream(), memory.all(), 0);
        target.get(order.stream(), memory.all(), 0);
        target.flush(order.stream());
        context.synchronize(order.stream());
      }
    });
    target.close();
  });
  expect_only_rank_1_killed(ended);
}

INSTANTIATE_IN_ITS_RANKS(Quick, LongAccesses, testing::ValuesIn(of_windows()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostLongAccesses, testing::ValuesIn(between_processes(of_windows())), CaseName());

}  // namespace
