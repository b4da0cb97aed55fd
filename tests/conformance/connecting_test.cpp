// SPDX-License-Identifier: Apache-2.0
// A put before the peer has opened its end, connecting with a timeout, and what a host may do until then.
#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kOpen = 0;    // on the board: the late side may open
constexpr std::size_t kPassed = 1;  // the early side's stream has finished its put

class Connecting : public testing::TestWithParam<Case> {};

TEST_P(Connecting, a_put_waits_until_the_peer_has_opened) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Order order(one);
      Sender sender = context.sender(1, kTag, buffer.all());
      EXPECT_FALSE(sender.connected());
      board().set(kOpen, 1);
      order.run([slot = buffer.all()] { fill(bytes_of(slot), {0, kTag, 1}); });
      sender.put(order.stream());  // in program order the host waits, else the stream does
      order.run([] { board().set(kPassed, 1); });
      context.synchronize(order.stream());
      EXPECT_TRUE(sender.connected());
    } else {
      board().await(kOpen, 1);
      expect_for(20ms, [] { return board().word(kPassed) == 0; });
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      EXPECT_EQ(difference(bytes_of(receiver.wait({})), {0, kTag, 1}), "");
      EXPECT_TRUE(receiver.connected());
    }
  });
}

TEST_P(Connecting, a_wait_and_a_release_wait_until_the_peer_has_opened) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Order order(one);
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      EXPECT_FALSE(receiver.test());  // also before the peer has opened its end
      board().set(kOpen, 1);
      for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        order.run([slot = receiver.wait(order.stream()), epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
        receiver.release(order.stream());
      }
      context.synchronize(order.stream());
    } else {
      board().await(kOpen, 1);
      Sender sender = context.sender(1, kTag, buffer.all());
      for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        fill(bytes_of(sender.acquire({})), {0, kTag, epoch});
        sender.put({});
      }
    }
  });
}

TEST_P(Connecting, a_timeout_changes_nothing_and_may_be_tried_again) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      for (int i = 0; i < 2; ++i) {
        const auto error = expect_code(Code::timeout, [&] { sender.wait_connected(20ms); });
        if (error) {
          EXPECT_EQ(error->rank(), 0);
          EXPECT_EQ(error->peer(), 1);
          EXPECT_EQ(error->tag(), kTag);
        }
      }
      context.check();  // it was no failure of the channel
      board().set(kOpen, 1);
      sender.wait_connected();
      EXPECT_TRUE(sender.connected());
      fill(buffer.bytes(), {0, kTag, 1});
      sender.put({});
    } else {
      board().await(kOpen, 1);
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      EXPECT_EQ(difference(bytes_of(receiver.wait({})), {0, kTag, 1}), "");
    }
  });
}

TEST_P(Connecting, in_program_order_a_put_gives_up_after_the_connect_timeout_and_may_be_tried_again) {
  Peers peers = GetParam().peers();
  peers.connect_timeout = 300ms;
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      expect_code(Code::timeout, [&] { sender.put({}); });
      EXPECT_EQ(sender.epoch(), 0U);
      board().set(kOpen, 1);
      board().await(kPassed, 1);
      fill(buffer.bytes(), {0, kTag, 1});
      expect_within(10s, [&] {
        try {
          sender.put({});
          return true;
        } catch (const Error& late) {  // on a busy machine the limit may be too short for this, too
          if (late.code() != Code::timeout) throw;
          return false;
        }
      });
      EXPECT_EQ(sender.epoch(), 1U);
      board().meet(context);
    } else {
      board().await(kOpen, 1);
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      board().set(kPassed, 1);
      EXPECT_EQ(difference(bytes_of(receiver.wait({})), {0, kTag, 1}), "");
      board().meet(context);
    }
  });
}

TEST_P(Connecting, committing_gives_up_after_its_timeout_and_may_be_tried_again) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    Order order(one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      Plan plan = context.plan();
      plan.add(sender);
      expect_code(Code::timeout, [&] { plan.commit(order.stream(), 20ms); });
      board().set(kOpen, 1);
      plan.commit(order.stream());
      order.run([slot = plan.slot(sender)] { fill(bytes_of(slot), {0, kTag, 1}); });
      plan.start(order.stream());
      context.synchronize(order.stream());
    } else {
      board().await(kOpen, 1);
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      EXPECT_EQ(difference(bytes_of(receiver.wait({})), {0, kTag, 1}), "");
    }
  });
}

/// The 60 s of a stream's wait for a peer that opens late are the host's business, not the stream's: it waits on.
TEST_P(Connecting, a_stream_waits_longer_than_the_connect_timeout) {
  Peers peers = GetParam().peers();
  peers.connect_timeout = 50ms;
  run_peers(peers, [](Context& context) {
    const Case one = on_host(GetParam());  // behind parked streams of a GPU nothing can be mapped
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Order order(one);
      Sender sender = context.sender(1, kTag, buffer.all());
      order.run([slot = buffer.all()] { fill(bytes_of(slot), {0, kTag, 1}); });
      sender.put(order.stream());
      board().set(kOpen, 1);
      context.synchronize(order.stream());
      board().meet(context);
    } else {
      board().await(kOpen, 1);
      expect_for(150ms, [] { return true; });
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      receiver.wait_connected(10s);
      EXPECT_EQ(difference(bytes_of(receiver.wait({})), {0, kTag, 1}), "");
      board().meet(context);
    }
  });
}

/// So that everything is mapped before anything is parked.
TEST_P(Connecting, the_kind_of_stream_may_be_named_at_opening) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    Order order(one);
    HostStream other;
    const Stream wrong = one.host ? Stream::program_order() : Stream::host(other);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all(), {.name = "named", .stream = order.stream()});
      EXPECT_NE(sender.describe().find("named"), std::string::npos) << sender.describe();
      expect_code(Code::misuse, [&] { sender.put(wrong); });
      order.run([slot = buffer.all()] { fill(bytes_of(slot), {0, kTag, 1}); });
      sender.put(order.stream());
      context.synchronize(order.stream());
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.stream = order.stream()});
      order.run([slot = receiver.wait(order.stream())] { expect_and_poison(slot, {0, kTag, 1}); });
      context.synchronize(order.stream());
      EXPECT_FALSE(receiver.describe().empty());
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Connecting, testing::ValuesIn(stream_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Connecting, full_cases([] {
                           return with_sizes(on(all_grounds(), memory_cases()), {8, 4097});
                         }),
                         CaseName());

}  // namespace
