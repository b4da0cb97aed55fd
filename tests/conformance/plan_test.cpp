// SPDX-License-Identifier: Apache-2.0
// Plans: many channels driven as one.
#include <algorithm>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Plans : public testing::TestWithParam<Case> {};

/// Channels to and from one peer, with tags kTag, kTag + 1, ...
struct Channels {
  struct Ways {
    bool out = true;
    bool in = true;
  };
  Channels(Context& context, const Case& one, Rank peer, int count, Ways ways = {true, true})
      : source(context, one, static_cast<std::size_t>(count) * slots(one)),
        target(context, one, static_cast<std::size_t>(count) * slots(one)) {
    for (int i = 0; i < count; ++i) {
      const Tag tag = kTag + static_cast<Tag>(i);
      const std::size_t offset = static_cast<std::size_t>(i) * slots(one);
      const auto part = [&](const Buffer& buffer) { return buffer.all().slice(offset, slots(one)); };
      if (ways.out) senders.push_back(context.sender(peer, tag, part(source), {.depth = one.depth}));
      if (ways.in) receivers.push_back(context.receiver(peer, tag, part(target), {.depth = one.depth}));
    }
  }
  static std::size_t slots(const Case& one) { return static_cast<std::size_t>(one.depth) * one.bytes; }

  void add_to(Plan& plan) {
    for (Sender& sender : senders) plan.add(sender);
    for (Receiver& receiver : receivers) plan.add(receiver);
  }
  /// A plan of all.
  Plan committed(Context& context, Stream stream) {
    Plan plan = context.plan();
    add_to(plan);
    plan.commit(stream);
    return plan;
  }

  Buffer source;
  Buffer target;
  std::vector<Sender> senders;
  std::vector<Receiver> receivers;
};

void fill_on(Order& order, const Slice& slot, const Stamp& stamp) {
  order.run([slot, stamp] { fill(bytes_of(slot), stamp); });
}

void expect_on(Order& order, const Slice& slot, const Stamp& stamp) {
  order.run([slot, stamp] { expect_and_poison(slot, stamp); });
}

void start_all(const Context& context, Order& order, Plan& plan, const Channels& channels, std::uint64_t epoch) {
  plan.acquire(order.stream());
  for (const Sender& sender : channels.senders)
    fill_on(order, plan.slot(sender), {context.rank(), sender.tag(), epoch});
  plan.start(order.stream());
}

/// Every byte is checked.
void wait_for_all(Order& order, Plan& plan, const Channels& channels, Rank peer, std::uint64_t epoch) {
  plan.wait(order.stream());
  for (const Receiver& receiver : channels.receivers)
    expect_on(order, plan.slot(receiver), {peer, receiver.tag(), epoch});
}

/// One exchange of every channel with `peer`: all four verbs.
void exchange(const Context& context, Order& order, Plan& plan, const Channels& channels, Rank peer,
              std::uint64_t epoch) {
  start_all(context, order, plan, channels, epoch);
  wait_for_all(order, plan, channels, peer, epoch);
  plan.release(order.stream());
}

TEST_P(Plans, move_every_byte_of_every_channel) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    Order order(one);
    Channels channels(context, one, other, 5);
    Plan plan = channels.committed(context, order.stream());
    for (std::uint64_t epoch = 1; epoch <= 70; ++epoch) exchange(context, order, plan, channels, other, epoch);
    context.synchronize(order.stream());
    for (const Sender& sender : channels.senders) EXPECT_EQ(sender.epoch(), 70U);
    for (const Receiver& receiver : channels.receivers) EXPECT_EQ(receiver.epoch(), 70U);
  });
}

/// The NIC has room for some of them.
TEST_P(Plans, mix_what_the_nic_fires_and_what_the_engine_posts) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_TRIGGER_ENTRIES=7"};
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    Order order(one);
    Channels channels(context, one, other, 8);
    Plan plan = channels.committed(context, order.stream());
    const auto fired_by = [&](const std::string& who) {
      return std::count_if(channels.senders.begin(), channels.senders.end(),
                           [&](const Sender& sender) { return sender.describe().ends_with("fired by " + who); });
    };
    if (one.ground.arms) {
      EXPECT_GT(fired_by("the NIC"), 0) << plan.describe();
      EXPECT_GT(fired_by("the engine"), 0) << plan.describe();
    }
    for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) exchange(context, order, plan, channels, other, epoch);
    context.synchronize(order.stream());
  });
}

/// More than a NIC has entries for.
TEST_P(Plans, of_three_hundred_channels) {
  Peers peers = GetParam().peers();
  peers.limit = 90s;
  peers.environment = {"SLUICE_TRIGGER_ENTRIES=252"};  // as many as one of two ranks gets of cxi's 504
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    Order order(one);
    constexpr int kChannels = 300;
    Plan plan = context.plan();
    Channels channels(context, one, other, kChannels, {context.rank() == 0, context.rank() == 1});
    channels.add_to(plan);
    plan.commit(order.stream());
    for (std::uint64_t epoch = 1; epoch <= (one.ground.slow ? 5 : 20); ++epoch)
      exchange(context, order, plan, channels, other, epoch);
    context.synchronize(order.stream());
  });
}

TEST_P(Plans, go_on_where_channels_driven_by_hand_were) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    Order order(one);
    const Stream stream = order.stream();
    Channels channels(context, one, other, 2);
    for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {  // the first channel alone: their epochs differ from then on
      fill_on(order, channels.senders[0].acquire(stream), {context.rank(), kTag, epoch});
      channels.senders[0].put(stream);
      expect_on(order, channels.receivers[0].wait(stream), {other, kTag, epoch});
      channels.receivers[0].release(stream);
    }
    Plan plan = channels.committed(context, stream);
    for (std::uint64_t epoch = 4; epoch <= 30; ++epoch) exchange(context, order, plan, channels, other, epoch);
    context.synchronize(stream);
    EXPECT_EQ(channels.senders[0].epoch(), 30U);
    EXPECT_EQ(channels.senders[1].epoch(), 27U);
  });
}

TEST_P(Plans, of_senders_and_of_receivers_apart_and_several_at_once) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    Order order(one);
    const Stream stream = order.stream();
    Channels channels(context, one, other, 4);
    Plan out = context.plan();
    Plan in = context.plan();
    Plan mixed = context.plan();
    out.add(channels.senders[0]).add(channels.senders[1]);
    in.add(channels.receivers[0]).add(channels.receivers[1]);
    mixed.add(channels.senders[2]).add(channels.receivers[2]);  // the fourth pair is driven by hand
    out.commit(stream);
    in.commit(stream);
    mixed.commit(stream);
    const auto stamp_of = [](Rank rank, std::size_t i, std::uint64_t epoch) {
      return Stamp{rank, kTag + static_cast<Tag>(i), epoch};
    };
    for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
      out.acquire(stream);
      mixed.acquire(stream);
      for (std::size_t i = 0; i < 4; ++i) {
        Plan& plan = i < 2 ? out : mixed;
        const Slice slot = i == 3 ? channels.senders[3].acquire(stream) : plan.slot(channels.senders[i]);
        fill_on(order, slot, stamp_of(context.rank(), i, epoch));
      }
      channels.senders[3].put(stream);
      mixed.start(stream);
      out.start(stream);
      in.wait(stream);
      mixed.wait(stream);
      for (std::size_t i = 0; i < 4; ++i) {
        Plan& plan = i < 2 ? in : mixed;
        const Slice slot = i == 3 ? channels.receivers[3].wait(stream) : plan.slot(channels.receivers[i]);
        expect_on(order, slot, stamp_of(other, i, epoch));
      }
      in.release(stream);
      mixed.release(stream);
      channels.receivers[3].release(stream);
    }
    context.synchronize(stream);
  });
}

TEST_P(Plans, waits_may_run_ahead_of_releases_by_the_depth) {
  Case deep = GetParam();
  deep.depth = 4;
  run_peers(deep.peers(), [deep](Context& context) {
    const Rank other = 1 - context.rank();
    Order order(deep);
    const Stream stream = order.stream();
    Channels channels(context, deep, other, 3);
    Plan plan = channels.committed(context, stream);
    for (std::uint64_t first = 1; first <= 40; first += 4) {
      for (std::uint64_t epoch = first; epoch < first + 4; ++epoch) start_all(context, order, plan, channels, epoch);
      for (std::uint64_t epoch = first; epoch < first + 4; ++epoch) wait_for_all(order, plan, channels, other, epoch);
      for (int i = 0; i < 4; ++i) plan.release(stream);
    }
    context.synchronize(stream);
  });
}

TEST_P(Plans, say_what_they_do) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    Channels channels(context, one, 1 - context.rank(), 3);
    Plan plan = channels.committed(context, order.stream());
    const std::string text = plan.describe();
    EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 6) << text;  // a line per channel
    for (const Tag tag : {kTag, kTag + 1, kTag + 2})
      EXPECT_NE(text.find(std::to_string(tag)), std::string::npos) << text;
    const char* const who = one.ground.name == "posted" ? "engine" : (one.ground.name == "rung" ? "NIC" : "stream");
    EXPECT_NE(text.find(who), std::string::npos) << text;
    board().meet(context);
  });
}

TEST_P(Plans, refuse_what_the_order_of_calls_forbids) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Stream stream = order.stream();
    HostStream host;
    const Stream other_kind = one.host ? Stream::program_order() : Stream::host(host);
    Channels channels(context, one, 1 - context.rank(), 3);
    Plan plan = context.plan();
    plan.add(channels.senders[0]).add(channels.receivers[0]);
    for (const auto verb : {&Plan::acquire, &Plan::start, &Plan::wait, &Plan::release}) {
      expect_code(Code::misuse, [&] { (plan.*verb)(stream); });  // before commit
    }
    expect_code(Code::misuse, [&] { plan.add(channels.senders[0]); });  // twice
    Plan second = context.plan();
    expect_code(Code::misuse, [&] { second.add(channels.receivers[0]); });  // in another plan
    plan.commit(stream);
    expect_code(Code::misuse, [&] { plan.add(channels.senders[1]); });
    expect_code(Code::misuse, [&] { plan.commit(stream); });
    expect_code(Code::misuse, [&] { plan.start(other_kind); });
    expect_code(Code::misuse, [&] { plan.release(stream); });  // without a wait
    // By hand no more.
    expect_code(Code::misuse, [&] { channels.senders[0].put(stream); });
    expect_code(Code::misuse, [&] { channels.senders[0].acquire(stream); });
    expect_code(Code::misuse, [&] { channels.receivers[0].wait(stream); });
    expect_code(Code::misuse, [&] { channels.receivers[0].test(); });
    expect_code(Code::misuse, [&] { channels.receivers[0].release(stream); });
    expect_code(Code::misuse, [&] { (void)plan.slot(channels.senders[2]); });  // not of this plan
    plan.start(stream);                                                        // none of this did any harm
    plan.wait(stream);
    plan.release(stream);
    context.synchronize(stream);
    board().meet(context);
  });
}

TEST_P(Plans, that_were_never_committed_leave_their_channels_free) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    Channels channels(context, one, 1 - context.rank(), 2);
    {
      Plan given_up = context.plan();
      channels.add_to(given_up);
    }
    Plan plan = channels.committed(context, order.stream());
    plan.start(order.stream());
    plan.wait(order.stream());
    context.synchronize(order.stream());
    board().meet(context);
  });
}

TEST_P(Plans, refuse_to_go_on_with_a_channel_that_is_closed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Stream stream = order.stream();
    Channels channels(context, one, 1 - context.rank(), 1);
    Plan plan = channels.committed(context, stream);
    plan.start(stream);
    plan.wait(stream);
    context.synchronize(stream);
    channels.senders[0].close();
    channels.receivers[0].close();
    expect_code(Code::misuse, [&] { plan.release(stream); });  // would raise a word that may have another owner by now
    expect_code(Code::misuse, [&] { plan.acquire(stream); });
    expect_code(Code::misuse, [&] { plan.start(stream); });
    expect_code(Code::misuse, [&] { plan.wait(stream); });
    board().meet(context);
  });
}

TEST_P(Plans, refuse_channels_of_another_world) {
  run_peers(GetParam().peers(), [](Context& context) {
    Plan plan = context.plan();
    const int code = run_threads(1, [&](Context& other) {
      const Memory memory = other.allocate(8);
      Sender sender = other.sender(0, kTag, memory.all());
      Receiver receiver = other.receiver(0, kTag, memory.all());
      expect_code(Code::misuse, [&] { plan.add(sender); });
      other.plan().add(sender).add(receiver);
    });
    EXPECT_EQ(code, 0);
  });
}

TEST_P(Plans, a_dead_peer_ends_a_plans_waits) {
  const Ended ended = end_of_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Stream stream = order.stream();
    Channels channels(context, one, 1 - context.rank(), 3);
    Plan plan = channels.committed(context, stream);
    board().meet(context);
    if (context.rank() == 1) throw std::runtime_error("as this test wants it");
    const auto wait = [&] {
      plan.wait(stream);
      context.synchronize(stream);
    };
    const auto error = expect_code(Code::peer_lost, wait);
    EXPECT_EQ(error ? error->peer() : -1, 1);
    expect_code(Code::peer_lost, [&] {
      plan.start(stream);
      context.synchronize(stream);
    });
  });
  EXPECT_EQ(ended.text, "sluice: rank 1: as this test wants it\n");
}

TEST_P(Plans, an_empty_plan_does_nothing) {
  run_peers(GetParam().peers(), [](Context& context) {
    Order order(GetParam());
    Plan plan = context.plan();
    plan.commit(order.stream());
    plan.acquire(order.stream());
    plan.start(order.stream());
    plan.wait(order.stream());
    plan.release(order.stream());
    context.synchronize(order.stream());
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Plans, testing::ValuesIn(with_depths(stream_cases(), {2})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Plans, testing::ValuesIn(on(wrapped_grounds(), with_depths(stream_cases(), {2}))),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(
    Full, Plans, full_cases([] {
      return with_sizes(with_depths(on(all_grounds(), memory_cases()), {1, 2, 8}), {0, 1, 100'000});
    }),
    CaseName());

}  // namespace
