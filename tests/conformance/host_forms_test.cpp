// SPDX-License-Identifier: Apache-2.0
// test, wait_for and drain: the calls of a host without a stream.
#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kPut = 0;      // on the board: the number of puts wanted
constexpr std::size_t kChecked = 1;  // and how many have been checked

class HostForms : public testing::TestWithParam<Case> {};

/// Puts one epoch each time that kPut grows, until `epochs`.
void put_when_asked(Context& context, const Case& one, std::uint64_t epochs) {
  Order order(one);
  const Buffer buffer(context, one);
  Sender sender = context.sender(1, kTag, buffer.all(), {.depth = one.depth});
  for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
    board().await(kPut, epoch);
    order.run([slot = sender.acquire(order.stream()), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
    sender.put(order.stream());
  }
  context.synchronize(order.stream());
  board().meet(context);
}

TEST_P(HostForms, a_test_that_fails_changes_nothing_and_one_that_succeeds_is_a_wait) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 0) return put_when_asked(context, one, 10);
    const Buffer buffer(context, one);
    Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = one.depth});
    for (std::uint64_t epoch = 1; epoch <= 10; ++epoch) {
      for (int i = 0; i < 5; ++i) EXPECT_FALSE(receiver.test());
      EXPECT_FALSE(receiver.wait_for(1ms));
      EXPECT_EQ(receiver.epoch(), epoch - 1);
      board().set(kPut, epoch);
      std::optional<Slice> slot;
      expect_within(10s, [&] { return (slot = receiver.test()).has_value(); });
      EXPECT_EQ(receiver.epoch(), epoch);
      if (slot) expect_and_poison(*slot, {0, kTag, epoch});
      receiver.release({});
    }
    board().meet(context);
  });
}

/// The receiver releases one epoch each time that kPut grows.
TEST_P(HostForms, say_whether_the_next_put_would_wait) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const auto depth = static_cast<std::uint64_t>(one.depth);
    Order order(one);
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all(), {.depth = one.depth});
      EXPECT_FALSE(sender.credited()) << "before the peer has opened its end";
      board().set(kPut, 1);
      for (std::uint64_t put = 1; put <= depth + 3; ++put) {
        expect_within(10s, [&] { return sender.credited(); });
        sender.acquire(order.stream());
        sender.put(order.stream());
        if (put < depth) continue;
        for (int i = 0; i < 5; ++i) EXPECT_FALSE(sender.credited());
        board().set(kPut, put - depth + 2);
      }
      board().set(kPut, depth + 4);
      context.synchronize(order.stream());
      board().meet(context);
    } else {
      board().await(kPut, 1);
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = one.depth});
      for (std::uint64_t epoch = 1; epoch <= depth + 3; ++epoch) {
        board().await(kPut, epoch + 1);
        receiver.wait(order.stream());
        receiver.release(order.stream());
      }
      context.synchronize(order.stream());
      board().meet(context);
    }
  });
}

/// A host that polls for credit gets an error when the peer has closed its end.
TEST_P(HostForms, say_that_no_put_follows_where_the_peer_has_closed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    if (end.first) {
      for (int put = 0; put < one.depth; ++put) {
        end.sender.acquire(end.stream());
        end.sender.put(end.stream());
      }
      context.synchronize(end.stream());
      board().set(kPut, 1);
      bool refused = false;
      expect_within(10s, [&] {
        try {
          EXPECT_FALSE(end.sender.credited());
        } catch (const Error& reason) {
          EXPECT_EQ(reason.code(), Code::misuse) << reason.what();
          refused = true;
        }
        return refused;
      });
    } else {
      for (int put = 0; put < one.depth; ++put) end.receiver.wait(end.stream());
      context.synchronize(end.stream());
      board().await(kPut, 1);
      end.receiver.close();
    }
    board().meet(context);
  });
}

TEST_P(HostForms, wait_for_returns_as_soon_as_the_epoch_has_landed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 0) return put_when_asked(context, one, 10);
    const Buffer buffer(context, one);
    Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = one.depth});
    for (std::uint64_t epoch = 1; epoch <= 10; ++epoch) {
      board().set(kPut, epoch);
      const auto slot = receiver.wait_for(60s);  // longer than the limit of this test
      ASSERT_TRUE(slot);
      expect_and_poison(*slot, {0, kTag, epoch});
      receiver.release({});
    }
    board().meet(context);
  });
}

TEST_P(HostForms, concern_the_epoch_after_the_last_wait_that_is_only_enqueued) {
  Case two_slots = GetParam();
  two_slots.depth = 2;
  run_peers(two_slots.peers(), [two_slots](Context& context) {
    const Case& one = two_slots;
    if (context.rank() == 0) return put_when_asked(context, one, 2);
    HostStream host;
    const Buffer buffer(context, one);
    Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = 2});
    host.run([] { board().await(kChecked, 1); });  // holds the stream before the wait
    const Slice first = receiver.wait(Stream::host(host));
    board().set(kPut, 1);
    receiver.wait_connected();
    EXPECT_FALSE(receiver.wait_for(20ms));  // epoch 1 belongs to the enqueued wait; epoch 2 has not come
    board().set(kPut, 2);
    const auto second = receiver.wait_for(10s);
    ASSERT_TRUE(second);
    EXPECT_NE(second->data(), first.data());
    EXPECT_EQ(difference(bytes_of(*second), {0, kTag, 2}), "");
    board().set(kChecked, 1);
    context.synchronize(Stream::host(host));
    EXPECT_EQ(difference(bytes_of(first), {0, kTag, 1}), "");
    board().meet(context);
  });
}

TEST_P(HostForms, test_and_wait_may_alternate) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 0) {
      board().set(kPut, 20);
      return put_when_asked(context, one, 20);
    }
    Order order(one);
    const Buffer buffer(context, one);
    Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = one.depth});
    for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
      if (epoch % 2 == 0) {
        order.run([slot = receiver.wait(order.stream()), epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
        receiver.release(order.stream());
        context.synchronize(order.stream());
      } else {
        const auto slot = receiver.wait_for(10s);
        ASSERT_TRUE(slot);
        expect_and_poison(*slot, {0, kTag, epoch});
        receiver.release(order.stream());
      }
    }
    context.synchronize(order.stream());
    board().meet(context);
  });
}

TEST_P(HostForms, drain_returns_when_every_signal_has_been_raised) {
  Case deep = GetParam();
  deep.depth = 2;
  run_peers(deep.peers(), [deep](Context& context) {
    const Case& one = deep;
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      HostStream host;
      const Stream stream = Stream::host(host);
      Sender sender = context.sender(1, kTag, buffer.all(), {.depth = 2});
      sender.drain(1ms);  // nothing was put
      fill(buffer.bytes(), {0, kTag, 1});
      for (int i = 0; i < 3; ++i) sender.put(stream);
      expect_code(Code::timeout, [&] { sender.drain(30ms); });  // the third waits for a credit
      context.check();
      board().set(kPut, 1);
      sender.drain(10s);
      board().set(kChecked, 1);
      context.synchronize(stream);
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = 2});
      board().await(kPut, 1);
      receiver.wait({});
      receiver.release({});
      board().await(kChecked, 1);
      EXPECT_TRUE(receiver.test());  // both have landed by now
      EXPECT_TRUE(receiver.test());
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, HostForms, testing::ValuesIn(stream_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(QuickUser, HostForms,
                         testing::Values(Case{.ground = {"shm", "shm", true}, .user = true, .bytes = 4097}),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, HostForms, full_cases([] {
                           return with_sizes(with_depths(on(all_grounds(), memory_cases()), {1, 8}), {8, 100'000});
                         }),
                         CaseName());

}  // namespace
