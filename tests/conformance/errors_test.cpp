// SPDX-License-Identifier: Apache-2.0
// A failure is recorded once, stays on its channel, releases every wait for it, and leaves every other channel
// alone.
#include "tests/conformance/cases.hpp"
#include "tests/faults/wrapped.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kParked = 1;
constexpr std::size_t kEnqueued = 2;

class Errors : public testing::TestWithParam<Case> {};

/// Ranks 0 and 1 go on with a channel of theirs; it must not have noticed anything.
void expect_healthy(const Context& context, Sender& sender, Receiver& receiver, std::uint64_t epochs) {
  const Rank other = 1 - context.rank();
  for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
    const Slice source = sender.acquire({});
    fill(bytes_of(source), {context.rank(), kTag + 1, epoch});
    sender.put({});
    expect_and_poison(receiver.wait({}), {other, kTag + 1, epoch});
    receiver.release({});
  }
}

// ---- a rank that ends

std::vector<Receiver> g_left_open;  // what a body leaves open

/// Rank 2 ends as `leave` says; ranks 0 and 1 wait for it and must be told.
void expect_loss_of_rank_2(Context& context, const Case& one, void (*leave)()) {
  Order order(one);
  const Buffer buffer(context, one, 4 * one.bytes);
  const auto part = [&](std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
  if (context.rank() == 2) {
    static std::optional<Buffer> kept;  // its memory stays, as that of a program that leaves in a hurry would not
    kept.emplace(context, one, 2 * one.bytes);
    for (const Rank peer : {0, 1}) {
      g_left_open.push_back(context.receiver(peer, kTag, kept->all().slice(peer * one.bytes, one.bytes)));
      g_left_open.back().wait_connected();
    }
    board().await(kParked, 2);
    return leave();
  }
  const Rank other = 1 - context.rank();
  Sender healthy_out = context.sender(other, kTag + 1, part(2));
  Receiver healthy_in = context.receiver(other, kTag + 1, part(3));
  Sender sender = context.sender(2, kTag, part(0));
  sender.wait_connected();
  const auto put_until_told = [&] {
    sender.put(order.stream());
    if (one.host) sender.put(order.stream());  // parked: the first is never released
    board().word(kParked).fetch_add(1);
    if (!one.host) sender.put(order.stream());
    context.synchronize(order.stream());
  };
  const auto error = expect_code(Code::peer_lost, put_until_told);
  if (error) {
    EXPECT_EQ(error->peer(), 2);
    EXPECT_EQ(error->rank(), context.rank());
    EXPECT_EQ(error->tag(), kTag);
    EXPECT_NE(std::string(error->what()).find("rank 2"), std::string::npos) << error->what();
  }
  expect_healthy(context, healthy_out, healthy_in, 20);
}

Peers three(const Case& one) {
  Case changed = one;
  changed.ranks = 3;
  Peers peers = changed.peers();
  peers.keep_going = true;
  return peers;
}

TEST_P(Errors, a_rank_whose_body_returns_with_channels_open_is_lost_to_its_peers) {
  run_peers(three(GetParam()), [](Context& context) { expect_loss_of_rank_2(context, GetParam(), [] {}); });
}

TEST_P(Errors, a_rank_whose_body_throws_with_channels_open_is_lost_to_its_peers) {
  const Ended ended = end_of_peers(three(GetParam()), [](Context& context) {
    expect_loss_of_rank_2(context, GetParam(), [] { throw std::runtime_error("as this test wants it"); });
  });
  EXPECT_FALSE(ended.hung);
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.text, "sluice: rank 2: as this test wants it\n");  // and no rank had anything else to say
}

/// Channels that live in the body close while the exception passes: the peer learns that this was no ordinary closing.
TEST_P(Errors, an_exception_that_passes_through_a_channel_is_a_loss_to_the_peer) {
  const Ended ended = end_of_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      receiver.wait_connected();
      throw std::runtime_error("as this test wants it");
    }
    Order order(one);
    Sender sender = context.sender(1, kTag, buffer.all());
    const auto put = [&] {
      for (int i = 0; i < 2; ++i) sender.put(order.stream());
      context.synchronize(order.stream());
    };
    const auto error = expect_code(Code::peer_lost, put);
    EXPECT_EQ(error ? error->peer() : -1, 1);
  });
  EXPECT_FALSE(ended.hung);
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.text, "sluice: rank 1: as this test wants it\n");
}

TEST_P(Errors, opening_a_channel_to_a_rank_that_has_ended_finds_it_lost) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 1) return;
    const Buffer buffer(context, one);
    Sender sender = context.sender(1, kTag, buffer.all());
    const auto error = expect_code(Code::peer_lost, [&] { sender.wait_connected(); });
    EXPECT_EQ(error ? error->peer() : -1, 1);
  });
}

// ---- sticky, and thrown once

TEST_P(Errors, stay_on_their_channel_and_are_thrown_once_by_check) {
  run_peers(three(GetParam()), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer buffer(context, one, 4 * one.bytes);
    const auto part = [&](std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
    if (context.rank() == 2) {
      static std::optional<Buffer> kept;
      kept.emplace(context, one, one.bytes);
      for (const Rank peer : {0, 1}) {
        g_left_open.push_back(context.receiver(peer, kTag, kept->all()));
        g_left_open.back().wait_connected();
      }
      return;
    }
    const Rank other = 1 - context.rank();
    Sender healthy_out = context.sender(other, kTag + 1, part(2));
    Receiver healthy_in = context.receiver(other, kTag + 1, part(3));
    Sender sender = context.sender(2, kTag, part(0));
    expect_within(10s, [&] {
      try {
        sender.drain(0ms);
        return false;
      } catch (const Error& error) {
        return error.code() == Code::peer_lost;
      }
    });
    for (int i = 0; i < 3; ++i) {
      expect_code(Code::peer_lost, [&] { sender.put(order.stream()); });
      expect_code(Code::peer_lost, [&] { sender.acquire(order.stream()); });
      expect_code(Code::peer_lost, [&] { sender.wait_connected(); });
    }
    expect_code(Code::peer_lost, [&] { context.check(); });
    context.check();  // once
    context.synchronize(order.stream());
    expect_code(Code::peer_lost, [&] { sender.put(order.stream()); });  // but on its channel always
    expect_healthy(context, healthy_out, healthy_in, 5);
  });
}

TEST_P(Errors, synchronize_throws_them_once_too) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 1) return;
    Order order(one);
    const Buffer buffer(context, one);
    Receiver receiver = context.receiver(1, kTag, buffer.all());
    expect_code(Code::peer_lost, [&] { receiver.wait_connected(); });
    expect_code(Code::peer_lost, [&] { context.synchronize(order.stream()); });
    context.synchronize(order.stream());
    context.check();
  });
}

// ---- abort

/// Rank 0's stream waits for all the others, and theirs for rank 0.
TEST_P(Errors, abort_releases_every_parked_stream_here_and_at_the_peers) {
  Case four = GetParam();
  four.ranks = 4;
  four.host = true;
  run_peers(four.peers(), [four](Context& context) {
    HostStream host;
    const Stream stream = Stream::host(host);
    const int size = context.size();
    const Buffer buffer(context, four, 8 * four.bytes);
    std::vector<Receiver> receivers;
    std::vector<Sender> senders;
    for (Rank peer = 0; peer < size; ++peer) {
      if (peer == context.rank()) continue;
      const auto slot = static_cast<std::size_t>(peer) * 2 * four.bytes;
      receivers.push_back(context.receiver(peer, kTag, buffer.all().slice(slot, four.bytes)));
      senders.push_back(context.sender(peer, kTag, buffer.all().slice(slot + four.bytes, four.bytes)));
    }
    for (Receiver& receiver : receivers) receiver.wait_connected();
    for (Sender& sender : senders) sender.wait_connected();
    const auto concerned = [&](const Receiver& receiver) { return context.rank() == 0 || receiver.peer() == 0; };
    for (Receiver& receiver : receivers) {
      if (concerned(receiver)) receiver.wait(stream);  // for an epoch that is never put
    }
    board().meet(context);
    if (context.rank() == 0) context.abort("the model diverged");
    const auto error = expect_code(Code::aborted, [&] { context.synchronize(stream); });
    if (error) {
      EXPECT_NE(std::string(error->what()).find("the model diverged"), std::string::npos) << error->what();
    }
    // Every channel of rank 0, and those of the others to it. Between the others nothing failed.
    for (Receiver& receiver : receivers) {
      if (concerned(receiver)) {
        expect_code(Code::aborted, [&] { receiver.test(); });
      } else {
        EXPECT_FALSE(receiver.test());
      }
    }
    board().meet(context);
  });
}

TEST_P(Errors, a_put_that_a_failure_released_moves_nothing) {
  run_peers(GetParam().peers(), [](Context& context) {
    ChannelEnd end(context, on_host(GetParam()));
    const Stream stream = end.stream();
    if (end.first) {
      for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        end.order.run([slot = end.sender.acquire(stream), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
        end.sender.put(stream);
      }
      board().set(kEnqueued, 1);
      expect_code(Code::aborted, [&] { context.synchronize(stream); });
      board().set(kParked, 1);
    } else {
      end.receiver.wait({});
      board().await(kEnqueued, 1);
      context.abort("enough");
      board().await(kParked, 1);  // the stream there has finished all three
      EXPECT_EQ(difference(end.buffer.bytes(), {0, kTag, 1}), "");
      expect_code(Code::aborted, [&] { context.check(); });
      board().set(kGo, 1);
    }
    board().await(kGo, 1);
  });
}

TEST_P(Errors, a_stream_that_is_destroyed_ends_its_parked_waits) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer buffer(context, GetParam());
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      board().await(kGo, 1);
      expect_within(10s, [&] {  // the peer learns of it
        try {
          sender.drain(0ms);
          return false;
        } catch (const Error& error) {
          return error.code() == Code::aborted;
        }
      });
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      receiver.wait_connected();
      {
        HostStream host;
        receiver.wait(Stream::host(host));
        receiver.release(Stream::host(host));
      }
      expect_code(Code::aborted, [&] { context.check(); });
      expect_code(Code::aborted, [&] { receiver.test(); });
      board().set(kGo, 1);
    }
    board().meet(context);
  });
}

/// The text of a failure may be longer than a packet.
TEST_P(Errors, a_text_without_end_is_cut_and_the_peer_is_told) {
  run_peers(GetParam().peers(), [](Context& context) {
    ChannelEnd end(context, GetParam());
    if (end.first) {
      end.sender.wait_connected();
      context.abort("the reason: " + std::string(1'000'000, 'x'));
      expect_code(Code::aborted, [&] { end.sender.put(end.stream()); });
    } else {
      const auto error = expect_code(Code::aborted, [&] {
        end.receiver.wait(end.stream());
        context.synchronize(end.stream());
      });
      const std::string what = error ? error->what() : "";
      EXPECT_NE(what.find("rank 0 reports: the reason: xxx"), std::string::npos) << what.substr(0, 200);
      EXPECT_LT(what.size(), 10'000U);
    }
    board().meet(context);
  });
}

class Obstacles : public testing::TestWithParam<Case> {};

TEST_P(Obstacles, that_one_end_meets_are_told_to_the_other) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer buffer(context, GetParam());
    if (context.rank() == 0) {
      board().await(kGo, 1);
      lose_path_to(1);
      Sender sender = context.sender(1, kTag, buffer.all());
      expect_code(Code::transport, [&] { sender.wait_connected(); });
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      board().set(kGo, 1);
      const auto error = expect_code(Code::transport, [&] { receiver.wait_connected(10s); });
      const std::string what = error ? error->what() : "";
      EXPECT_NE(what.find("does not reach rank 1: its path is lost"), std::string::npos) << what;
    }
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Wrapped, Obstacles,
                         testing::ValuesIn(on({{"posted", "posted"}}, {Case{}, Case{.host = true}})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, Errors, testing::ValuesIn(stream_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(QuickUser, Errors,
                         testing::Values(Case{.ground = {"shm", "shm", true}, .user = true, .bytes = 4097}),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Errors,
                         testing::ValuesIn(on({{"posted", "posted"}, {"rung", "rung"}}, {Case{.host = true}})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Errors, full_cases([] {
                           return with_sizes(on(all_grounds(), memory_cases()), {0, 100'000});
                         }),
                         CaseName());

}  // namespace
