// SPDX-License-Identifier: Apache-2.0
// Limits on waits for a live peer: none by default; one that ends a stream's wait fails its channel.
#include "runtime/handles.hpp"
#include "runtime/receiver.hpp"
#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

const std::string kTagText = "tag " + std::to_string(kTag);

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

/// The error of a wait that rank 0 or 1 has given up: which one, and what its text says of the channel's state.
void expect_given_up(const std::optional<Error>& error, Rank peer, std::uint64_t epoch, const std::string& state) {
  if (!error) return;
  EXPECT_EQ(error->peer(), peer);
  EXPECT_EQ(error->tag(), kTag);
  EXPECT_EQ(error->epoch(), epoch);
  EXPECT_NE(std::string(error->what()).find(state), std::string::npos) << error->what();
}

/// Two puts of depth 1: the second waits for its credit.
void put_twice(Context& context, ChannelEnd& end) {
  end.sender.put(end.stream());
  end.sender.put(end.stream());
  context.synchronize(end.stream());
}

/// Output of a job with a long wait: all parts, and a table of waits in which one line has both `waiting` and `why`.
struct Written {
  std::vector<std::string> parts;
  std::string waiting;
  std::string why;

  bool in_table(const std::string& text) const {
    const auto line = [&](std::size_t at) { return text.substr(at, text.find('\n', at) - at); };
    for (std::size_t at = text.find(waiting); at != std::string::npos; at = text.find(waiting, at + 1))
      if (line(at).find(why) != std::string::npos) return true;
    return false;
  }
  /// Returns the first part that `text` lacks; empty: it has all.
  std::string lacks(const std::string& text) const {
    for (const std::string& part : parts)
      if (text.find(part) == std::string::npos) return part;
    return in_table(text) ? "" : "a line with \"" + waiting + "\" and \"" + why + "\"";
  }
};

/// The ranks are warned after 10 ms. In `body` one waits until kSaid, which tells that all was written.
void expect_written(const Written& written, const Body& body) {
  Peers peers = Timeouts::GetParam().peers();
  peers.environment = {"SLUICE_WARN=10ms", "SLUICE_LOG=info"};
  peers.said = [&](const std::string& text) { return written.lacks(text).empty(); };
  const Ended ended = end_of_peers(peers, body);
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_EQ(written.lacks(ended.text), "") << ended.text;
}

/// Rank 1 waits for an epoch that rank 0 does not put; rank 0 must learn of the failure.
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
    expect_given_up(expect_code(Code::timeout, wait), 0, 1, "landed");
    expect_code(Code::timeout, [&] { receiver.wait(stream); });  // it is sticky
  } else {
    expect_report_of(1, [&] { sender.drain(0ms); });
  }
  board().meet(context);
  // The other direction has not failed.
  if (context.rank() == 1) {
    sender.put(stream);
    sender.drain(10s);  // the limit of the context is for what is tested here
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
    ChannelEnd end(context, GetParam());
    if (end.first) {
      end.sender.wait_connected();  // the limit holds for that too, on a stream
      const auto error = expect_code(Code::timeout, [&] { put_twice(context, end); });
      expect_given_up(error, 1, 2, "credited 0 of depth 1");
      expect_code(Code::timeout, [&] { end.sender.put(end.stream()); });  // it is sticky
    } else {
      expect_report_of(0, [&] { end.receiver.wait_connected(); });
    }
    board().meet(context);
  });
}

/// More than the limit, but nothing waits for a word all that time.
TEST_P(Timeouts, a_limit_concerns_each_wait_and_not_their_sum) {
  Peers peers = GetParam().peers();
  peers.timeout = 3s;
  run_peers(peers, [](Context& context) {
    constexpr int kPuts = 35;  // each 100 ms after the one before
    ChannelEnd end(context, GetParam());
    if (end.first) {
      for (int i = 0; i < kPuts; ++i) {
        std::this_thread::sleep_for(100ms);
        end.sender.put({});
      }
    } else {
      for (int i = 0; i < kPuts; ++i) {
        end.receiver.wait(end.stream());
        end.receiver.release(end.stream());
      }
      context.synchronize(end.stream());
    }
  });
}

/// A signal may arrive between the last look and the failure.
TEST_P(Timeouts, a_limit_ends_no_wait_for_what_has_come) {
  Peers peers = GetParam().peers();
  peers.timeout = 200ms;
  run_peers(peers, [](Context& context) {
    const Buffer buffer(context, GetParam());
    if (context.rank() == 0) {
      const Sender sender = context.sender(1, kTag, buffer.all());
      expect_reported(context, Code::timeout);
      return board().meet(context);
    }
    const Receiver receiver = context.receiver(0, kTag, buffer.all());
    const auto& end = detail::ChannelAccess::end(receiver);
    base::Word word;
    word.value.store(1);
    base::WaitNote note;
    EXPECT_EQ(end->waited({.word = &word, .at_least = 1, .epoch = 1}, 1h, kForever, note), 0s);
    context.check();
    EXPECT_EQ(end->waited({.word = &word, .at_least = 2, .epoch = 2}, 1h, kForever, note), 0s);
    expect_code(Code::timeout, [&] { context.check(); });
    board().meet(context);
  });
}

TEST_P(Timeouts, a_long_wait_is_logged_with_the_state_of_its_channel) {
  const Written written{{"info", "patient", "rank 1", "peer 0", std::to_string(kTag), "epoch 2", "landed 1"},
                        "rank 1 waits from rank 0, " + kTagText + " 'patient'",
                        "rank 0 has not put epoch 2 of " + kTagText};
  expect_written(written, [](Context& context) {
    ChannelEnd end(context, GetParam(), {.name = context.rank() == 0 ? "slow" : "patient"});
    if (end.first) {
      end.sender.put({});
      board().await(kSaid, 1);
      end.sender.put({});
    } else {
      end.receiver.wait(end.stream());
      end.receiver.release(end.stream());
      end.receiver.wait(end.stream());
      context.synchronize(end.stream());
    }
  });
}

TEST_P(Timeouts, a_long_wait_in_many_turns_is_logged) {
  const Written written{{"info", "patient", "rank 1", "peer 0", "epoch 2", "still waiting", "landed 1"},
                        "rank 1 waits from rank 0, " + kTagText + " 'patient'",
                        "rank 0 has not put epoch 2 of " + kTagText};
  expect_written(written, [](Context& context) {
    const Buffer buffer(context, GetParam());
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.put({});
      board().await(kSaid, 1);  // the other rank polls, each time for less than it takes to be warned
      sender.put({});
      sender.drain();
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.name = "patient"});
      receiver.wait({});
      receiver.release({});
      while (!receiver.wait_for(1ms)) {
      }
      receiver.release({});
    }
  });
}

TEST_P(Timeouts, a_put_that_waits_long_for_its_credit_is_logged_with_the_state_of_its_channel) {
  const Written written{
      {"info", "eager", "rank 0", "peer 1", std::to_string(kTag), "enqueued 2 puts", "fired 1", "credited 0"},
      "rank 0 puts to rank 1, " + kTagText + " 'eager'",
      "rank 1 holds epoch 1 of " + kTagText};
  expect_written(written, [](Context& context) {
    ChannelEnd end(context, GetParam(), {.name = context.rank() == 0 ? "eager" : "slow"});
    if (end.first) {
      put_twice(context, end);
    } else {
      end.receiver.wait({});
      board().await(kSaid, 1);
      end.receiver.release({});
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Timeouts, testing::ValuesIn(stream_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Timeouts, full_cases([] { return on(all_grounds(), memory_cases()); }), CaseName());

}  // namespace
