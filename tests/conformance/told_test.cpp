// SPDX-License-Identifier: Apache-2.0
// A failure always reaches somebody: a call throws it, or the run says so and ends with 1.
#include <stdexcept>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr const char* kUntold = "no call has thrown this";
constexpr std::size_t kWritten = 1;
constexpr std::size_t kAhead = 2;

std::size_t times_in(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Asserts that the run ended with 1 and that no assertion of a rank made it so.
void expect_1(const Ended& ended) {
  EXPECT_EQ(ended.code, 1) << ended.text;
  EXPECT_EQ(times_in(ended.text, "_test.cpp"), 0U) << ended.text;
}

class Told : public testing::TestWithParam<Case> {};

/// Rank 0 aborts while both waits of rank 1, on one host stream, sleep; then rank 1 calls `goes_on`.
Ended after_an_abort(const Case& one, void (*goes_on)(Context&, HostStream&)) {
  return end_of_peers(one.peers(), [one, goes_on](Context& context) {
    HostStream host;
    const Buffer buffer(context, one, 2 * one.bytes);
    const Slice first = buffer.all().slice(0, one.bytes);
    const Slice second = buffer.all().slice(one.bytes, one.bytes);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, first);
      Sender other = context.sender(1, kTag + 1, second);
      sender.wait_connected();
      other.wait_connected();
      board().meet(context);
      context.abort("no fuel");
      board().meet(context);
    } else {
      Receiver receiver = context.receiver(0, kTag, first);
      Receiver other = context.receiver(0, kTag + 1, second);
      receiver.wait(Stream::host(host));
      other.wait(Stream::host(host));
      host.run([] { board().set(kGo, 1); });
      board().meet(context);
      board().await(kGo, 1);
      goes_on(context, host);
      board().meet(context);
    }
  });
}

TEST_P(Told, a_failure_that_no_call_throws_is_one_line_and_code_1) {
  const Ended ended = after_an_abort(GetParam(), [](Context&, HostStream&) {});
  expect_1(ended);
  EXPECT_EQ(times_in(ended.text, kUntold), 1U) << ended.text;  // for two channels, and not at the rank that aborted
  EXPECT_EQ(times_in(ended.text, "rank 1: " + std::string(kUntold) + ": aborted: receiver: rank 0 reports: "), 1U)
      << ended.text;
  EXPECT_NE(ended.text.find("no fuel"), std::string::npos) << ended.text;
}

TEST_P(Told, a_failure_of_one_channel_that_a_call_has_thrown_tells_of_its_cause) {
  const Ended ended = after_an_abort(
      GetParam(), [](Context&, HostStream& host) { expect_code(Code::aborted, [&] { host.synchronize(); }); });
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_EQ(times_in(ended.text, kUntold), 0U) << ended.text;
}

TEST_P(Told, each_failure_is_thrown_once_by_synchronize_or_by_check) {
  const Ended ended = after_an_abort(GetParam(), [](Context& context, HostStream& host) {
    const auto first = expect_code(Code::aborted, [&] { host.synchronize(); });
    const auto second = expect_code(Code::aborted, [&] { context.check(); });
    if (first && second) {
      EXPECT_NE(first->tag(), second->tag());
    }
    EXPECT_NO_THROW(host.synchronize());
    EXPECT_NO_THROW(context.synchronize(Stream::host(host)));
    EXPECT_NO_THROW(context.check());
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
}

TEST_P(Told, what_stands_behind_a_wait_that_the_end_of_its_stream_cuts_off_is_not_run) {
  const Case& one = GetParam();
  const Ended ended = end_of_peers(one.peers(), [one](Context& context) {
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.wait_connected();
      board().meet(context);
      const auto error = error_of([&] {
        for (;;) static_cast<void>(sender.credited());
      });
      if (error) {
        EXPECT_EQ(name(error->code()), std::string("aborted")) << error->what();
      }
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      HostStream host;
      receiver.wait(Stream::host(host));
      host.run([] { board().set(kWritten, 1); });
      receiver.wait_connected();
      board().meet(context);
    }
    board().meet(context);
    EXPECT_EQ(board().word(kWritten), 0U);
  });
  expect_1(ended);
  EXPECT_EQ(times_in(ended.text, "rank 1: " + std::string(kUntold)), 1U) << ended.text;
}

/// Rank 0 puts behind a callable that throws; rank 1 gets the text and not the bytes.
Ended after_a_throw(const Case& one, void (*goes_on)(HostStream&, Sender&)) {
  return end_of_peers(one.peers(), [one, goes_on](Context& context) {
    HostStream host({.name = "interior"});
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.wait_connected();
      host.run([] { throw std::runtime_error("no number in step 2"); });
      sender.put(Stream::host(host));
      host.run([] { board().set(kWritten, 1); });
      goes_on(host, sender);
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      const auto error = expect_code(Code::aborted, [&] { receiver.wait({}); });
      if (error) {
        const std::string text = error->what();
        EXPECT_NE(text.find("rank 0 reports: "), std::string::npos) << text;
        EXPECT_NE(text.find("stream 'interior': no number in step 2"), std::string::npos) << text;
      }
    }
    board().meet(context);
    EXPECT_EQ(board().word(kWritten), 0U);
  });
}

TEST_P(Told, a_callable_that_throws_stops_its_stream_and_tells_the_peer) {
  const Ended ended = after_a_throw(GetParam(), [](HostStream& host, Sender& sender) {
    EXPECT_THROW(host.synchronize(), std::runtime_error);
    bool runs_again = false;
    host.run([&] { runs_again = true; });
    expect_code(Code::aborted, [&] { host.synchronize(); });  // of the channel, once
    EXPECT_NO_THROW(host.synchronize());
    EXPECT_TRUE(runs_again);
    expect_code(Code::aborted, [&] { static_cast<void>(sender.connected()); });
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
}

TEST_P(Told, an_exception_of_a_callable_that_no_call_throws_is_one_line_and_code_1) {
  const Ended ended = after_a_throw(GetParam(), [](HostStream&, Sender&) {});
  expect_1(ended);
  EXPECT_EQ(times_in(ended.text, kUntold), 1U) << ended.text;
  EXPECT_NE(ended.text.find("stream 'interior': no number in step 2"), std::string::npos) << ended.text;
}

/// The stream of rank 0 sleeps in a wait for rank 2, which never puts; its put to rank 1 stands behind that.
TEST_P(Told, an_exception_tells_the_peers_of_all_ends_that_hold_it_up) {
  Peers three = GetParam().peers();
  three.ranks = 3;
  three.keep_going = true;
  const Ended ended = end_of_peers(three, [](Context& context) {
    const Case& one = GetParam();
    Order order(on_host(one));
    const Buffer buffer(context, one, 2 * one.bytes);
    const Slice half = buffer.all().slice(0, one.bytes);
    if (context.rank() == 0) {
      Receiver receiver = context.receiver(2, kTag, half);
      Sender sender = context.sender(1, kTag, buffer.all().slice(one.bytes, one.bytes));
      receiver.wait_connected();
      sender.wait_connected();
      receiver.wait(order.stream());
      sender.put(order.stream());
      throw std::runtime_error("leaves");
    }
    if (context.rank() == 1) {
      Receiver receiver = context.receiver(0, kTag, half);
      expect_code(Code::peer_lost, [&] { receiver.wait({}); });
    } else {
      Sender sender = context.sender(0, kTag, half);
      expect_code(Code::peer_lost, [&] {
        for (;;) static_cast<void>(sender.credited());
      });
    }
  });
  expect_1(ended);
  EXPECT_FALSE(ended.hung) << ended.text;
  EXPECT_EQ(ended.text.find("not closed after"), std::string::npos) << ended.text;
  EXPECT_NE(ended.text.find("leaves"), std::string::npos) << ended.text;
}

/// The body goes on, and what stood behind a wait of an end that held up the destroyed one does not run.
TEST_P(Told, a_caught_exception_stops_the_streams_that_it_cuts_off) {
  const Ended ended = end_of_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    HostStream host;
    const Buffer buffer(context, one, 2 * one.bytes);
    const Slice half = buffer.all().slice(0, one.bytes);
    if (context.rank() == 0) {
      Receiver receiver = context.receiver(1, kTag, half);
      receiver.wait_connected();
      receiver.wait(Stream::host(host));
      host.run([] { board().set(kWritten, 1); });
      try {
        Sender sender = context.sender(1, kTag, buffer.all().slice(one.bytes, one.bytes));
        sender.wait_connected();
        sender.put(Stream::host(host));
        throw std::runtime_error("caught");
      } catch (const std::runtime_error& caught) {
        EXPECT_STREQ(caught.what(), "caught");
      }
      expect_code(Code::peer_lost, [&] { host.synchronize(); });
      bool runs_again = false;
      host.run([&] { runs_again = true; });
      host.synchronize();
      EXPECT_TRUE(runs_again);
    } else {
      Sender sender = context.sender(0, kTag, half);
      Receiver receiver = context.receiver(0, kTag, buffer.all().slice(one.bytes, one.bytes));
      expect_code(Code::peer_lost, [&] { receiver.wait({}); });
    }
    board().meet(context);
    EXPECT_EQ(board().word(kWritten), 0U);
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
}

TEST_P(Told, a_failure_after_one_of_the_same_kind_was_told_is_told_anew) {
  const Ended ended = end_of_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    for (int round = 0; round < 2; ++round) {
      board().meet(context);
      if (context.rank() == 0) {
        Sender sender = context.sender(1, kTag, buffer.all());
        sender.wait_connected();
        board().await(kAhead, static_cast<std::uint64_t>(round) + 1);
        context.abort("no fuel");
        board().meet(context);
      } else {
        Receiver receiver = context.receiver(0, kTag, buffer.all());
        HostStream host;
        receiver.wait(Stream::host(host));
        host.run([] { board().word(kGo).fetch_add(1); });
        board().word(kAhead).fetch_add(1);
        board().await(kGo, static_cast<std::uint64_t>(round) + 1);
        if (round == 0) expect_code(Code::aborted, [&] { host.synchronize(); });
        board().meet(context);
      }
    }
  });
  expect_1(ended);
  EXPECT_EQ(times_in(ended.text, kUntold), 1U) << ended.text;
}

TEST_P(Told, an_abort_reaches_a_peer_that_connects_at_this_moment) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    board().meet(context);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      context.abort("no fuel");
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      const auto error = expect_code(Code::aborted, [&] { receiver.wait({}); });
      if (error) {
        EXPECT_NE(std::string(error->what()).find("no fuel"), std::string::npos) << error->what();
      }
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Told, testing::ValuesIn(inline_only(stream_cases())), CaseName());

}  // namespace
