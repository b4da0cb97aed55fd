// SPDX-License-Identifier: Apache-2.0
// Puts of a plan of messages on a stream, into memory that the receiver has not freed. That the host enqueues them
// early is no mistake.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/cases.hpp"
#include "tests/conformance/unr_cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::chrono::milliseconds kResetWithin{50};

class UnrEarlyPuts : public testing::TestWithParam<Case> {
 public:
  /// Expects the mistake of round 2, whichever rank reports it.
  static void expect_mistake(const std::optional<Error>& error) {
    ASSERT_TRUE(error);
    const std::string what =
        "plan 'one way': round 2 would put into memory that rank 1 has not freed: its signal 'arrived' was not reset "
        "in epoch 1";
    EXPECT_NE(std::string(error->what()).find(what), std::string::npos) << error->what();
  }
  static void expect_data(const OneWayPlan& side, std::uint64_t round) {
    EXPECT_EQ(difference(side.memory.bytes(), {0, kTag, round}), "");
  }
};

TEST_P(UnrEarlyPuts, are_reported_at_both_ranks_when_a_host_stream_reaches_them) {
  if (GetParam().cuda) return;
  run_peers(GetParam().peers(), [](Context& context) {
    OneWayPlan side(context, GetParam(), {.reset_within = kResetWithin});
    if (side.rank == 0) {
      fill(side.memory.bytes(), {0, kTag, 1});
      side.plan.start(side.stream());
      side.signal.wait(side.stream());
      side.signal.reset(side.stream());
      side.order.run([&] { fill(side.memory.bytes(), {0, kTag, 2}); });
      board().meet(context);           // rank 1 has waited
      side.plan.start(side.stream());  // is enqueued
      const auto error = expect_code(Code::misuse, [&] { context.synchronize(side.stream(), 10s); });
      expect_mistake(error);
      EXPECT_EQ(error->rank(), 0);
      EXPECT_EQ(error->peer(), 1);
      EXPECT_EQ(error->tag(), 7U);
      EXPECT_EQ(error->epoch(), 2U);
      expect_code(Code::misuse, [&] { side.signal.wait(side.stream()); });
      board().meet(context);
    } else {
      side.signal.wait(side.stream());
      context.synchronize(side.stream());
      board().meet(context);
      expect_mistake(expect_code(Code::misuse, [&] { expect_within(10s, [&] { return context.check(), false; }); }));
      board().meet(context);  // the stream of the sender has completed all puts
      expect_data(side, 1);
      expect_mistake(expect_code(Code::misuse, [&] { side.signal.reset(side.stream()); }));
    }
    board().meet(context);
  });
}

/// The host enqueues all rounds at once. In the order of its stream, an answer that implies the reset comes before each
/// start. Over a network that order does not hold for the credits.
TEST_P(UnrEarlyPuts, are_none_when_only_the_host_is_ahead) {
  const bool maps = GetParam().ground.name == "threads" || GetParam().ground.name.starts_with("shm");
  if (GetParam().cuda || !maps) return;
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kMessageBytes = 3000;
    const Rank other = 1 - context.rank();
    test::Order order(GetParam());
    const Buffer source(context, GetParam(), kMessageBytes);
    const Buffer target(context, GetParam(), kMessageBytes);
    unr::Plan plan(context, "ahead", {.reset_within = kResetWithin});
    unr::Signal sent = plan.signal("sent");
    unr::Signal arrived = plan.signal("arrived");
    plan.sendrecv(source.all(), other, 7, target.all(), other, 7, sent, arrived);
    plan.commit(order.stream());
    if (context.rank() == 1) order.run([&words = board()] { words.await(kGo, 1); });  // holds the stream
    const auto receive = [&](std::uint64_t round) {
      arrived.wait(order.stream());
      order.run([&, round] { EXPECT_EQ(difference(target.bytes(), {other, kTag, round}), ""); });
      arrived.reset(order.stream());
    };
    for (std::uint64_t round = 1; round <= 10; ++round) {
      if (context.rank() == 1) receive(round);
      order.run([&, round] { fill(source.bytes(), {context.rank(), kTag, round}); });
      plan.start(order.stream());
      if (context.rank() == 0) receive(round);
      sent.wait(order.stream());
      sent.reset(order.stream());
    }
    if (context.rank() == 0) {
      expect_for(3 * kResetWithin, [&] { return context.check(), true; });
      board().set(kGo, 1);
    }
    context.synchronize(order.stream());
    board().meet(context);
  });
}

/// A put that a failure sets free there would move its bytes.
TEST_P(UnrEarlyPuts, wait_on_the_stream_of_a_gpu) {
  if (!GetParam().cuda) return;
  run_peers(GetParam().peers(), [](Context& context) {
    OneWayPlan side(context, GetParam(), {.reset_within = kResetWithin});
    for (std::uint64_t round = 1; round <= 2; ++round) {
      if (side.rank == 0) {
        side.order.run([&, round] { fill(side.memory.bytes(), {0, kTag, round}); });
        side.plan.start(side.stream());
        board().set(kGo, round);
      } else if (round == 2) {
        board().await(kGo, 2);
        expect_for(3 * kResetWithin, [&] { return difference(side.memory.bytes(), {0, kTag, 1}).empty(); });
        side.signal.reset(side.stream());
      }
      side.signal.wait(side.stream());
      if (side.rank == 0) {
        side.signal.reset(side.stream());
      } else {
        context.synchronize(side.stream());
        expect_data(side, round);
      }
    }
    context.synchronize(side.stream());
    board().meet(context);
  });
}

std::vector<Case> of_early_puts() {
  std::vector<Case> all = unr_cases({2});
  std::erase_if(all, [](const Case& one) { return one.user || !one.host; });
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, UnrEarlyPuts, testing::ValuesIn(of_early_puts()), CaseName());

}  // namespace
