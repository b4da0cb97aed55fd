// SPDX-License-Identifier: Apache-2.0
// Puts may be armed ahead of their stream, which no program can see. A NIC can hold a limited number of armed puts:
// the channels beyond that are the engine's, and work all the same.
#include <algorithm>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kAllEnqueued = 0;  // on the board: in how many rounds all puts are enqueued
constexpr int kArmedChannels = 5;
constexpr int kArmedEpochs = 4;

class Armed : public testing::TestWithParam<Case> {};

constexpr std::size_t kMayPut = 1;  // on the board: up to which put the sender's stream may go

TEST_P(Armed, puts_wait_for_their_stream) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr std::uint64_t kPuts = 8;
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      HostStream host;
      const Stream stream = Stream::host(host);
      Sender sender = context.sender(1, kTag, buffer.all(), {.depth = one.depth});
      sender.wait_connected();
      for (std::uint64_t epoch = 1; epoch <= kPuts; ++epoch) {
        host.run([slot = sender.acquire(stream), epoch] {
          board().await(kMayPut, epoch);
          fill(bytes_of(slot), {0, kTag, epoch});
        });
        sender.put(stream);
      }
      return context.synchronize(stream);
    }
    Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = one.depth});
    for (std::uint64_t epoch = 1; epoch <= kPuts; ++epoch) {
      expect_for(5ms, [&] { return !receiver.test(); });
      board().set(kMayPut, epoch);
      expect_and_poison(receiver.wait({}), {0, kTag, epoch});
      receiver.release({});
    }
  });
}

/// The first of them over a connection that is as new as the channel.
TEST_P(Armed, puts_of_a_rank_to_itself_arrive) {
  Peers peers = GetParam().peers();
  peers.ranks = 1;
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    constexpr std::uint64_t kPuts = 8;
    const Buffer source(context, one);
    const Buffer target(context, one);
    Order there(one);
    Order here(one);
    Sender sender = context.sender(0, kTag, source.all(), {.depth = one.depth});
    Receiver receiver = context.receiver(0, kTag, target.all(), {.depth = one.depth});
    for (std::uint64_t epoch = 1; epoch <= kPuts; ++epoch) {
      there.run([slot = sender.acquire(there.stream()), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
      sender.put(there.stream());
      here.run([slot = receiver.wait(here.stream()), epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
      receiver.release(here.stream());
    }
    context.synchronize(there.stream());
    context.synchronize(here.stream());
  });
}

constexpr std::size_t kClosing = 2;  // on the board: the sender has tried to close
constexpr std::size_t kMayWait = 3;  // the receiver's stream may go on

/// The receiver closes before the stream comes to all puts but the first.
void put_too_late(Context& context, Case one) {
  const int puts = one.depth++;  // so that the source has a slot more
  HostStream host;
  const Stream stream = Stream::host(host);
  const Buffer source(context, one);
  fill(source.bytes(), {0, kTag, 1});
  Sender sender = context.sender(1, kTag, source.all(), {.depth = one.depth});
  sender.put(stream);
  sender.drain();
  host.run([] { board().await(kMayPut, 1); });
  for (int put = 2; put <= puts; ++put) sender.put(stream);
  board().set(kAllEnqueued, 1);
  expect_within(10s, [&] { return is_refused(sender, stream); });
  board().set(kMayPut, 1);
  context.synchronize(stream);
  try {
    sender.close(50ms);  // what is armed must wait: the receiver's memory can be written to still
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::timeout);
  }
  board().set(kClosing, 1);
  sender.close();
}

void close_too_early(Context& context, const Case& one) {
  HostStream host;
  const Stream stream = Stream::host(host);
  const Buffer target(context, one);
  Receiver receiver = context.receiver(0, kTag, target.all(), {.depth = one.depth});
  host.run([] { board().await(kMayWait, 1); });
  receiver.wait(stream);
  board().await(kAllEnqueued, 1);
  expect_code(Code::timeout, [&] { receiver.close(Timeout::zero()); });
  board().await(kClosing, 1);
  const std::size_t slot_of_the_first = one.bytes;
  EXPECT_EQ(unlike_poison(target.bytes().first(slot_of_the_first)), "");
  EXPECT_EQ(unlike_poison(target.bytes().subspan(slot_of_the_first + one.bytes)), "");
  board().set(kMayWait, 1);
  receiver.close();
}

TEST_P(Armed, puts_that_the_stream_never_fires_move_nothing) {
  run_peers(GetParam().peers(), [](Context& context) {
    context.rank() == 0 ? put_too_late(context, GetParam()) : close_too_early(context, GetParam());
  });
}

constexpr std::size_t kReleased = 4;     // on the board: the stream may release
constexpr std::size_t kFirstClosed = 5;  // the first receiver is closed

/// The sender closes between the call of release and the stream's coming to it. The word of the credit is soon that of
/// the next channel.
TEST_P(Armed, a_credit_that_was_armed_before_its_peer_closed_reaches_no_other_channel) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    HostStream host;
    const Stream stream = Stream::host(host);
    const Buffer buffer(context, one, 2 * one.bytes);
    const Slice first = buffer.all().slice(0, one.bytes);
    const Slice second = buffer.all().slice(one.bytes, one.bytes);
    const Slice none = buffer.all().slice(0, 0);
    if (context.rank() == 0) {
      const Sender other = context.sender(1, kTag + 2, none);  // its word keeps theirs known to the network
      {
        Sender sender = context.sender(1, kTag, first);
        sender.put({});
        board().await(kAllEnqueued, 1);
        board().set(kClosing, 1);
      }  // is closed, and its word is free
      Sender next = context.sender(1, kTag + 1, second);
      next.put(stream);
      next.put(stream);
      host.run([] { board().set(kMayPut, 1); });
      board().await(kFirstClosed, 1);
      expect_for(20ms, [] { return board().word(kMayPut) == 0; });  // the second has no credit
      board().set(kMayWait, 1);
      context.synchronize(stream);
    } else {
      const Receiver other = context.receiver(0, kTag + 2, none);
      Receiver receiver = context.receiver(0, kTag, first);
      receiver.wait_connected();  // what is called from now on is armed
      receiver.wait(stream);
      host.run([] { board().await(kReleased, 1); });
      receiver.release(stream);
      board().set(kAllEnqueued, 1);
      board().await(kClosing, 1);
      const auto is_told = [&] { return receiver.closed(); };
      expect_within(10s, is_told);
      expect_for(50ms, is_told);  // and its engine has released the channel
      board().set(kReleased, 1);
      Receiver next = context.receiver(0, kTag + 1, second);
      receiver.close();
      board().set(kFirstClosed, 1);
      board().await(kMayWait, 1);
      for (int epoch = 1; epoch <= 2; ++epoch) {
        next.wait({});
        next.release({});
      }
    }
  });
}

class Budgets : public testing::TestWithParam<Case> {};

auto fired_by(const std::string& who, const std::vector<Sender>& senders) {
  return std::count_if(senders.begin(), senders.end(),
                       [&](const Sender& sender) { return sender.describe().ends_with("fired by " + who); });
}

/// Opens kArmedChannels to rank 1, of which the NIC is to fire `armed`, enqueues kArmedEpochs puts on each before the
/// stream may move, and closes them.
void put_all(Context& context, const Case& one, std::uint64_t round, int armed) {
  HostStream host;
  const Stream stream = Stream::host(host);
  const Buffer source(context, one, kArmedChannels * kArmedEpochs * one.bytes);
  std::vector<Sender> senders;
  for (int i = 0; i < kArmedChannels; ++i) {
    const Slice slots =
        source.all().slice(static_cast<std::size_t>(i) * kArmedEpochs * one.bytes, kArmedEpochs * one.bytes);
    senders.push_back(context.sender(1, kTag + static_cast<Tag>(i), slots, {.depth = kArmedEpochs}));
  }
  for (Sender& sender : senders) sender.wait_connected();
  EXPECT_EQ(fired_by("the NIC", senders), armed);
  if (one.ground.arms) {
    EXPECT_EQ(fired_by("the engine", senders), kArmedChannels - armed);
  }
  host.run([round] { board().await(kAllEnqueued, round); });
  for (std::uint64_t epoch = 1; epoch <= kArmedEpochs; ++epoch) {
    for (Sender& sender : senders) {
      fill(bytes_of(sender.acquire(stream)), {0, sender.tag(), epoch});
      sender.put(stream);
    }
  }
  board().set(kAllEnqueued, round);
  context.synchronize(stream);
}

void take_all(Context& context, const Case& one) {
  Order order(one);
  const Buffer target(context, one, kArmedChannels * one.bytes);
  std::vector<Receiver> receivers;
  for (int i = 0; i < kArmedChannels; ++i) {
    const Slice slot = target.all().slice(static_cast<std::size_t>(i) * one.bytes, one.bytes);
    receivers.push_back(context.receiver(0, kTag + static_cast<Tag>(i), slot));
  }
  for (std::uint64_t epoch = 1; epoch <= kArmedEpochs; ++epoch) {
    for (Receiver& receiver : receivers) {
      order.run([slot = receiver.wait(order.stream()), stamp = Stamp{0, receiver.tag(), epoch}] {
        expect_and_poison(slot, stamp);
      });
      receiver.release(order.stream());
    }
  }
  context.synchronize(order.stream());
}

/// With this setting, rank 0 may have `armed` puts fired by its NIC, where it has one. Round after round: what is
/// closed gives back what it took.
void expect_armed(const Case& one, const std::string& setting, int armed) {
  Peers peers = one.peers();
  peers.environment = {setting};
  run_peers(peers, [&](Context& context) {
    for (std::uint64_t round = 1; round <= 3; ++round) {
      if (context.rank() == 0) {
        put_all(context, one, round, one.ground.arms ? armed : 0);
      } else {
        take_all(context, one);
      }
    }
  });
}

TEST_P(Budgets, are_kept_and_nothing_blocks_while_puts_are_enqueued) {
  for (const int entries : {0, 1, 2, 3})
    expect_armed(GetParam(), "SLUICE_TRIGGER_ENTRIES=" + std::to_string(entries), entries);
}

/// cxi keeps 8 of 14 entries for itself, and two ranks share the rest.
TEST_P(Budgets, are_a_ranks_share_of_what_the_nic_has) {
  expect_armed(GetParam(), "EMUCXI_TLES=14", GetParam().ground.name == "emucxi" ? 3 : kArmedChannels);
}

/// Their bells take counters of the NIC.
TEST_P(Budgets, leave_the_puts_of_a_plan_apart_where_no_bell_is_left) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer source(context, one, 2 * one.bytes);
    const Buffer target(context, one, 2 * one.bytes);
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    Plan plan = context.plan();
    for (const std::size_t i : {0, 1}) {
      const auto tag = kTag + static_cast<Tag>(i);
      senders.push_back(context.sender(1 - context.rank(), tag, source.all().slice(i * one.bytes, one.bytes)));
      receivers.push_back(context.receiver(1 - context.rank(), tag, target.all().slice(i * one.bytes, one.bytes)));
      plan.add(senders.back());
      plan.add(receivers.back());
    }
    refuse_bells();
    plan.commit(order.stream());
    for (std::uint64_t epoch = 1; epoch <= 5; ++epoch) {
      plan.acquire(order.stream());
      for (const Sender& sender : senders)
        order.run([slot = plan.slot(sender), stamp = Stamp{context.rank(), sender.tag(), epoch}] {
          fill(bytes_of(slot), stamp);
        });
      plan.start(order.stream());
      plan.wait(order.stream());
      for (const Receiver& receiver : receivers)
        order.run([slot = plan.slot(receiver), stamp = Stamp{1 - context.rank(), receiver.tag(), epoch}] {
          expect_and_poison(slot, stamp);
        });
      plan.release(order.stream());
    }
    context.synchronize(order.stream());
  });
}

/// The emulated NIC can be told to fail.
class FailedWrites : public testing::TestWithParam<Case> {};

constexpr int kDeep = 8;
constexpr std::uint64_t kLost = 5;  // the put that fails

void put_beyond_what_fails(Context& context, const Case& one, const Slice& source) {
  HostStream host;
  const Stream stream = Stream::host(host);
  Sender sender = context.sender(1, kTag, source.slice(0, kDeep * one.bytes), {.depth = kDeep});
  Sender healthy = context.sender(1, kTag + 1, source.slice(kDeep * one.bytes, one.bytes));
  sender.wait_connected();
  host.run([] { board().await(kAllEnqueued, 1); });
  for (std::uint64_t epoch = 1; epoch <= kDeep; ++epoch) {
    fill(bytes_of(sender.acquire(stream)), {0, kTag, epoch});
    sender.put(stream);
  }
  board().set(kAllEnqueued, 1);
  expect_code(Code::transport, [&] { sender.drain(); });
  expect_code(Code::transport, [&] { sender.put(stream); });
  expect_code(Code::transport, [&] { context.synchronize(stream); });
  context.check();  // it was said once
  fill(bytes_of(healthy.acquire({})), {0, kTag + 1, 1});
  healthy.put({});
  healthy.drain();
  board().meet(context);
}

void take_up_to_what_fails(Context& context, const Case& one, const Slice& target) {
  Receiver receiver = context.receiver(0, kTag, target.slice(0, kDeep * one.bytes), {.depth = kDeep});
  Receiver healthy = context.receiver(0, kTag + 1, target.slice(kDeep * one.bytes, one.bytes));
  for (std::uint64_t epoch = 1; epoch < kLost; ++epoch) {
    const auto slot = receiver.wait_for(10s);
    ASSERT_TRUE(slot);
    expect_and_poison(*slot, {0, kTag, epoch});
  }
  expect_code(Code::transport, [&] { receiver.wait_for(10s); });  // although all that follow have landed
  expect_code(Code::transport, [&] { context.check(); });
  expect_and_poison(healthy.wait({}), {0, kTag + 1, 1});
  board().meet(context);
}

TEST_P(FailedWrites, are_never_believed_and_end_their_channel_alone) {
  for (const int entries : {kDeep, 0}) {
    Peers peers = GetParam().peers();
    peers.environment = {"SLUICE_TRIGGER_ENTRIES=" + std::to_string(entries),
                         "EMUCXI_FAIL_EVERY=" + std::to_string(1 + kLost)};  // the first write tries the path
    run_peers(peers, [](Context& context) {
      const Case& one = GetParam();
      const Buffer buffer(context, one, (kDeep + 1) * one.bytes);
      if (context.rank() == 0) {
        put_beyond_what_fails(context, one, buffer.all());
      } else {
        take_up_to_what_fails(context, one, buffer.all());
      }
    });
  }
}

// ---- a completion queue that breaks

/// The probes of its paths end no more.
class BrokenQueues : public testing::TestWithParam<Case> {};

TEST_P(BrokenQueues, end_every_wait) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_TRIGGER_ENTRIES=0", "EMUCXI_OVERRUN_AT=20", "SLUICE_PEER_TIMEOUT=2s"};
  peers.keep_going = true;
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, buffer.all());
      const auto error = error_of([&] {
        for (;;) sender.put({});
      });
      EXPECT_TRUE(error);
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      const auto error = error_of([&] {
        for (;;) {
          receiver.wait({});
          receiver.release({});
        }
      });
      EXPECT_TRUE(error);
    }
  });
}

std::vector<Case> emulated() {
  std::vector<Case> cases = with_sizes(stream_cases(), {4096});
  std::erase_if(cases, [](const Case& one) { return one.ground.name != "emucxi" || one.host; });
  return cases;
}

/// More puts fire than a provider has room for: refused puts leave later, even if nothing rings any more.
class Bursts : public testing::TestWithParam<Case> {};

constexpr int kInBurst = 64;  // channels, of as many epochs as they have slots

TEST_P(Bursts, leave_whole_although_nothing_is_rung_behind_them) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const auto depth = static_cast<std::uint64_t>(one.depth);
    Order order(one);
    const Buffer buffer(context, one, kInBurst * depth * one.bytes);
    const auto slots = [&](int i) {
      return buffer.all().slice(static_cast<std::size_t>(i) * depth * one.bytes, depth * one.bytes);
    };
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    Plan plan = context.plan();
    for (int i = 0; i < kInBurst; ++i) {
      const Tag tag = kTag + static_cast<Tag>(i);
      if (context.rank() == 0) {
        for (std::uint64_t epoch = 1; epoch <= depth; ++epoch)
          fill(bytes_of(slots(i)).subspan(epoch % depth * one.bytes, one.bytes), {0, tag, epoch});
        plan.add(senders.emplace_back(context.sender(1, tag, slots(i), {.depth = one.depth})));
      } else {
        plan.add(receivers.emplace_back(context.receiver(0, tag, slots(i), {.depth = one.depth})));
      }
    }
    plan.commit(order.stream());
    for (std::uint64_t epoch = 1; epoch <= depth; ++epoch) {
      if (context.rank() == 0) {
        plan.start(order.stream());
        continue;
      }
      plan.wait(order.stream());
      for (const Receiver& receiver : receivers) {
        order.run(
            [slot = plan.slot(receiver), stamp = Stamp{0, receiver.tag(), epoch}] { expect_and_poison(slot, stamp); });
      }
      plan.release(order.stream());
    }
    context.synchronize(order.stream());
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Bursts, testing::ValuesIn(with_depths(with_sizes(stream_cases(), {8}), {64})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, Armed, testing::ValuesIn(with_depths(stream_cases(), {4})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Armed, testing::ValuesIn(with_depths(on(wrapped_grounds(), stream_cases()), {4})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, Budgets, testing::ValuesIn(stream_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Budgets, testing::ValuesIn(on(wrapped_grounds(), stream_cases())), CaseName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FailedWrites);  // where the filter names no such network
INSTANTIATE_IN_ITS_RANKS(Quick, FailedWrites, testing::ValuesIn(emulated()), CaseName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BrokenQueues);
INSTANTIATE_IN_ITS_RANKS(Quick, BrokenQueues, testing::ValuesIn(emulated()), CaseName());

}  // namespace
