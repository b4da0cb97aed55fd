// SPDX-License-Identifier: Apache-2.0
// Limits on waits for a live peer: none by default; one that ends a stream's wait fails its channel.
#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr Tag kTag = 71;

class Timeouts : public testing::TestWithParam<Case> {};

/// Waits until `call` throws that `peer` has reported a timeout.
template <class F>
void expect_report_of(Rank peer, F call) {
  expect_within(10s, [&] {
    try {
      call();
      return false;
    } catch (const Error& error) {
      return error.code() == Code::timeout && error.peer() == peer;
    }
  });
}

/// Rank 1 waits for what rank 0 does not put; rank 0 must hear of the failure.
void expect_timeout(Context& context, const Case& one, HostStream& host) {
  const Stream stream = one.host ? Stream::host(host) : Stream::program_order();
  const Buffer buffer(context, one, 2 * one.bytes);
  Sender sender = context.sender(1 - context.rank(), kTag, buffer.all().slice(0, one.bytes));
  Receiver receiver = context.receiver(1 - context.rank(), kTag, buffer.all().slice(one.bytes, one.bytes));
  sender.wait_connected();
  receiver.wait_connected();
  if (context.rank() == 1) {
    const auto wait = [&] {
      receiver.wait(stream);
      context.synchronize(stream);
    };
    const auto error = expect_code(Code::timeout, wait);
    if (error) {
      EXPECT_EQ(error->peer(), 0);
      EXPECT_EQ(error->tag(), kTag);
      EXPECT_EQ(error->epoch(), 1U);
      // The state of the channel, for who has to find out why.
      EXPECT_NE(std::string(error->what()).find("landed"), std::string::npos) << error->what();
    }
    expect_code(Code::timeout, [&] { receiver.wait(stream); });  // it is sticky
  } else {
    expect_report_of(1, [&] { sender.drain(0ms); });
  }
  board().meet(context);
  // The other direction has not failed.
  if (context.rank() == 1) {
    sender.put(stream);
    sender.drain();
  } else {
    EXPECT_TRUE(receiver.wait_for(10s));
  }
  board().meet(context);
}

TEST_P(Timeouts, a_limit_ends_a_wait_on_a_stream) {
  Peers peers = GetParam().peers();
  peers.timeout = 200ms;
  run_peers(peers, [](Context& context) {
    HostStream host;
    expect_timeout(context, GetParam(), host);
  });
}

TEST_P(Timeouts, the_environment_says_so_too) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_TIMEOUT=200ms"};
  run_peers(peers, [](Context& context) {
    HostStream host;
    expect_timeout(context, GetParam(), host);
  });
}

TEST_P(Timeouts, a_host_stream_may_have_a_limit_of_its_own) {
  Case one = GetParam();
  one.host = true;
  run_peers(one.peers(), [one](Context& context) {
    HostStream host({.timeout = 200ms});
    expect_timeout(context, one, host);
  });
}

TEST_P(Timeouts, a_limit_ends_a_put_that_waits_for_its_credit) {
  Peers peers = GetParam().peers();
  peers.timeout = 200ms;
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.wait_connected();  // the limit holds for that too, on a stream
      const auto put_twice = [&] {
        for (int i = 0; i < 2; ++i) sender.put(order.stream());
        context.synchronize(order.stream());
      };
      const auto error = expect_code(Code::timeout, put_twice);
      if (error) {
        EXPECT_EQ(error->peer(), 1);
        EXPECT_EQ(error->tag(), kTag);
        EXPECT_EQ(error->epoch(), 2U);
        EXPECT_NE(std::string(error->what()).find("credited 0 of depth 1"), std::string::npos) << error->what();
      }
      expect_code(Code::timeout, [&] { sender.put(order.stream()); });  // it is sticky
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      expect_report_of(0, [&] { receiver.wait_connected(); });
    }
    board().meet(context);
  });
}

/// Twice the limit and more, but nothing waits for a word all that time.
TEST_P(Timeouts, a_limit_concerns_each_wait_and_not_their_sum) {
  Peers peers = GetParam().peers();
  peers.timeout = 2000ms;
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      for (int i = 0; i < 25; ++i) {
        std::this_thread::sleep_for(100ms);
        sender.put({});
      }
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      for (int i = 0; i < 25; ++i) {
        receiver.wait(order.stream());
        receiver.release(order.stream());
      }
      context.synchronize(order.stream());
    }
  });
}

TEST_P(Timeouts, a_long_wait_is_logged_with_the_state_of_its_channel) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_WARN=50ms"};
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all(), {.name = "slow"});
      sender.wait_connected();
      std::this_thread::sleep_for(300ms);
      sender.put({});
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.name = "patient"});
      receiver.wait(order.stream());
      context.synchronize(order.stream());
    }
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
  for (const char* const part : {"warn", "patient", "rank 1", "peer 0", "71", "epoch 1", "landed 0"}) {
    EXPECT_NE(ended.text.find(part), std::string::npos) << part << " is not in:\n" << ended.text;
  }
}

TEST_P(Timeouts, a_put_that_waits_long_for_its_credit_is_logged_with_the_state_of_its_channel) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_WARN=10ms"};
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all(), {.name = "eager"});
      sender.put(order.stream());
      order.run([] { board().set(0, 1); });
      sender.put(order.stream());
      context.synchronize(order.stream());
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.name = "slow"});
      receiver.wait({});
      board().await(0, 1);
      std::this_thread::sleep_for(500ms);  // the other rank now waits, for many times as long as it takes to be warned
      receiver.release({});
    }
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
  for (const char* const part :
       {"warn", "eager", "rank 0", "peer 1", "71", "enqueued 2 puts", "fired 1", "credited 0"}) {
    EXPECT_NE(ended.text.find(part), std::string::npos) << part << " is not in:\n" << ended.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Quick, Timeouts, testing::ValuesIn(stream_cases()), CaseName());
INSTANTIATE_TEST_SUITE_P(Full, Timeouts, full_cases([] { return on(all_grounds(), memory_cases()); }), CaseName());

}  // namespace
