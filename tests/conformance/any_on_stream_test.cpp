// SPDX-License-Identifier: Apache-2.0
// WaitAny in the order of a stream: rank 0 waits for whichever of the other ranks' channels comes first.
#include <thread>
#include <vector>

#include "tests/conformance/any_streams.hpp"
#include "tests/conformance/windows.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class AnyOnStream : public testing::TestWithParam<Case> {};

/// All is enqueued before the first put, so the host has no part in what follows.
TEST_P(AnyOnStream, work_behind_knows_which_came_first_and_sees_its_bytes) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::uint64_t kSteps = 12;
    const auto sender_at = [&](std::uint64_t step) { return static_cast<Rank>((step * 3 + step / 4) % 2) + 1; };
    if (context.rank() == 0) {
      AnyWaiter waiter(context, GetParam());
      std::vector<std::uint64_t> epochs(2);
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        const auto ticket = waiter.any.wait(waiter.stream());
        waiter.order.run([&, ticket, step] {
          const auto got = ticket.arrival();
          ASSERT_TRUE(got && !got->closed());
          EXPECT_EQ(static_cast<Rank>(got->index) + 1, sender_at(step));
          expect_and_poison(*got->slot, {static_cast<Rank>(got->index) + 1, kTag, ++epochs[got->index]});
        });
        waiter.any.release(waiter.stream(), ticket);
        waiter.order.run([step] { board().set(kAnyTurn, step + 1); });
      }
      board().set(kAnyTurn, 1);
      waiter.synchronize();
      EXPECT_EQ(epochs[0] + epochs[1], kSteps);
      board().meet(context);
    } else {
      AnySender sender(context, GetParam());
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        board().await(kAnyTurn, step);
        if (step % 3 == 0) std::this_thread::sleep_for(5ms);  // the stream sleeps
        if (sender_at(step) == context.rank()) sender.put();
      }
      context.synchronize(sender.order.stream());
      board().meet(context);  // before it closes, of which the stream would be told
    }
  });
}

/// Each sender goes as fast as its credits allow. Callables of a HostStream release in program order.
TEST_P(AnyOnStream, every_message_is_taken_once_and_in_order) {
  run_peers(GetParam().peers(), [](Context& context) {
    const std::uint64_t puts = GetParam().times(60);
    if (context.rank() == 0) {
      AnyWaiter waiter(context, GetParam());
      std::vector<std::uint64_t> epochs(2);
      std::vector<int> closings(2);
      while (waiter.any.left() > 0) {
        const auto ticket = waiter.any.wait_some(waiter.stream());
        waiter.order.run([&, ticket] {
          for (const auto& one : ticket.arrivals()) {
            if (one.closed()) {
              ++closings[one.index];
              continue;
            }
            expect_and_poison(*one.slot, {static_cast<Rank>(one.index) + 1, kTag, ++epochs[one.index]});
            if (!GetParam().cuda) waiter.receivers[one.index].release({});
          }
        });
        if (GetParam().cuda) waiter.any.release(waiter.stream(), ticket);
        waiter.synchronize();
      }
      EXPECT_EQ(epochs, std::vector<std::uint64_t>(2, puts));
      EXPECT_EQ(closings, std::vector<int>(2, 1));
    } else {
      AnySender sender(context, GetParam());
      for (std::uint64_t put = 0; put < puts; ++put) sender.put();
      context.synchronize(sender.order.stream());
    }
  });
}

TEST_P(AnyOnStream, a_failed_one_is_reported_by_the_stream_and_the_others_go_on) {
  run_peers(GetParam().peers(), [](Context& context) {
    const bool fails = context.rank() == 1;
    if (context.rank() == 0) {
      AnyWaiter waiter(context, GetParam(), "as agreed");
      const auto failed = waiter.any.wait(waiter.stream());
      const auto reason = expect_code(Code::mismatch, [&] { waiter.synchronize(); });
      EXPECT_EQ(reason ? reason->peer() : -1, 1);
      expect_code(Code::mismatch, [&] { static_cast<void>(failed.arrivals()); });
      EXPECT_EQ(waiter.any.left(), 1U);
      board().set(kAnyTurn, 1);
      const auto next = waiter.any.wait(waiter.stream());
      waiter.any.release(waiter.stream(), next);
      waiter.synchronize();
      EXPECT_EQ(next.arrival()->index, 1U);
    } else {
      AnySender sender(context, GetParam(), fails ? "something else" : "as agreed");
      if (fails) {
        expect_code(Code::mismatch, [&] { sender.sender.wait_connected(); });
        expect_code(Code::mismatch, [&] { context.check(); });
      } else {
        board().await(kAnyTurn, 1);
        sender.put();
        context.synchronize(sender.order.stream());
      }
    }
  });
}

std::vector<Case> any_on_stream_cases(const std::vector<Ground>& of) {
  std::vector<Case> cases = of.empty() ? stream_cases() : on(of, stream_cases());
  // If a NIC alone leads from the rank to itself, the host cannot enqueue all of it ahead of the first put.
  std::erase_if(cases, [](const Case& one) { return one.cuda && one.ground.name == "emucxi"; });
  return with_ranks(cases, {3});
}

INSTANTIATE_IN_ITS_RANKS(Quick, AnyOnStream, testing::ValuesIn(any_on_stream_cases({})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, AnyOnStream, testing::ValuesIn(any_on_stream_cases(wrapped_grounds())), CaseName());

class KilledAnyOnStream : public WithKills {};

/// Rank 1 is the one that dies, while the stream waits for it and rank 2.
TEST_P(KilledAnyOnStream, a_dead_peer_ends_the_wait_and_the_others_go_on) {
  Peers peers = GetParam().peers();
  peers.keep_going = peers.untold = true;
  peers.limit = 60s;
  expect_only_rank_1_killed(end_of_peers(peers, [](Context& context) {
    if (context.rank() > 0) {
      AnySender sender(context, GetParam());
      sender.sender.wait_connected();
      if (context.rank() == 1) die_when_ready();
      board().await(kAnyTurn, 1);
      sender.put();
      context.synchronize(sender.order.stream());
      return;
    }
    AnyWaiter waiter(context, GetParam());
    for (Receiver& receiver : waiter.receivers) receiver.wait_connected();
    const auto lost = waiter.any.wait(waiter.stream());
    board().set(kReady, 1);
    expect_loss_of_rank_1(
        context, [&] { waiter.synchronize(); }, waiter.stream());
    expect_loss_of_rank_1(context, [&] { static_cast<void>(lost.arrival()); });
    board().set(kAnyTurn, 1);
    const auto next = waiter.any.wait(waiter.stream());
    waiter.any.release(waiter.stream(), next);
    waiter.synchronize();
    EXPECT_EQ(next.arrival()->index, 1U);
  }));
}

INSTANTIATE_IN_ITS_RANKS(Quick, KilledAnyOnStream, testing::ValuesIn(between_processes(any_on_stream_cases({}))),
                         CaseName());

}  // namespace
