// SPDX-License-Identifier: Apache-2.0
// A rank is killed at a random instant of its puts, waits and releases of segments.
#include <random>

#include "tests/conformance/random_seed.hpp"
#include "tests/conformance/segments.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class KilledSegments : public WithKills {
 protected:
  static Peers peers() {
    Peers peers = GetParam().peers();
    peers.keep_going = peers.untold = true;
    peers.limit = 60s;
    return peers;
  }
  template <class Work>
  [[noreturn]] static void die_at_random(std::uint64_t seed, Work work) {
    std::mt19937_64 random(seed);
    board().await(kReady, 1);
    const auto end = Clock::now() + std::chrono::microseconds(random() % 10'000);
    while (Clock::now() < end) work();
    die();
  }
};

/// Rank 1 is the one that dies.
TEST_P(KilledSegments, receivers_release_their_sender) {
  const std::uint64_t seed = random_seed();
  expect_only_rank_1_killed(end_of_peers(peers(), [=](Context& context) {
    SegmentSide side(context, GetParam(), 1000);
    if (context.rank() == 1) {
      die_at_random(seed, [&] {
        if (side.receiver.wait_for(0, 500, 100us)) side.receiver.release(0, 500);
      });
    }
    side.sender.wait_connected();
    board().set(kReady, 1);
    expect_loss_of_rank_1(
        context,
        [&] {
          for (;;) {
            side.sender.i_put(side.stream(), 0, 250);
            side.sender.i_put(side.stream(), 250, 250);
            side.sender.wait(side.stream(), 0, 500);
            side.synchronize();
          }
        },
        side.stream());
    expect_code(Code::peer_lost, [&] { side.sender.try_put(600, 1); });
    side.sender.close();
  }));
}

TEST_P(KilledSegments, senders_release_their_receiver) {
  const std::uint64_t seed = random_seed();
  expect_only_rank_1_killed(end_of_peers(peers(), [=](Context& context) {
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), 1000);
    if (context.rank() == 1) {
      SegmentSender sender(context, 0, 1, memory.all());
      sender.wait_connected();
      die_at_random(seed, [&] { static_cast<void>(sender.try_put(0, 500)); });
    }
    SegmentReceiver receiver(context, 1, 1, memory.all());
    receiver.wait_connected();
    board().set(kReady, 1);
    expect_loss_of_rank_1(
        context,
        [&] {
          for (;;) {
            receiver.wait(order.stream(), 0, 500);
            receiver.release(order.stream(), 0, 500);
            context.synchronize(order.stream());
          }
        },
        order.stream());
    WaitAny any;
    expect_code(Code::peer_lost, [&] { any.add(receiver, 0, 10); });
    receiver.close();
  }));
}

INSTANTIATE_IN_ITS_RANKS(Quick, KilledSegments, testing::ValuesIn(between_processes(of_segments())), CaseName());

}  // namespace
