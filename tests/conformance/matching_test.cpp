// SPDX-License-Identifier: Apache-2.0
// A sender meets the receiver with its peer, tag and scope, the i-th opening the i-th, and waits for no other rank.
#include <algorithm>
#include <numeric>
#include <random>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Matching : public testing::TestWithParam<Case> {};

/// One epoch of a channel, stamped so that only its own receiver can take it for its own.
void put_once(Sender& sender, const Slice& source, const Stamp& stamp) {
  fill(bytes_of(source), stamp);
  sender.put({});
}

void expect_once(Receiver& receiver, const Stamp& stamp) {
  const Slice slot = receiver.wait({});
  EXPECT_EQ(difference(bytes_of(slot), stamp), "");
  receiver.release({});
}

TEST_P(Matching, the_order_of_opening_does_not_matter) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr Tag kTags = 12;
    std::vector<Tag> order(kTags);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(context.rank()) + 5));
    const Buffer buffer(context, one, kTags * one.bytes);
    const auto slot = [&](Tag tag) { return buffer.all().slice(tag * one.bytes, one.bytes); };
    if (context.rank() == 0) {
      std::vector<std::pair<Tag, Sender>> senders;
      for (const Tag tag : order) senders.emplace_back(tag, context.sender(1, tag, slot(tag)));
      for (auto& [tag, sender] : senders) put_once(sender, slot(tag), {0, tag, 1});
    } else {
      std::vector<std::pair<Tag, Receiver>> receivers;
      for (const Tag tag : order) receivers.emplace_back(tag, context.receiver(0, tag, slot(tag)));
      for (auto& [tag, receiver] : receivers) expect_once(receiver, {0, tag, 1});
    }
  });
}

TEST_P(Matching, both_directions_of_a_tag_are_two_channels) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Rank other = 1 - context.rank();
    const Buffer source(context, one);
    const Buffer target(context, one);
    Sender sender = context.sender(other, 3, source.all());
    Receiver receiver = context.receiver(other, 3, target.all());
    EXPECT_EQ(sender.peer(), other);
    EXPECT_EQ(receiver.peer(), other);
    EXPECT_EQ(sender.tag(), 3U);
    EXPECT_EQ(receiver.tag(), 3U);
    put_once(sender, source.all(), {context.rank(), 3, 1});
    expect_once(receiver, {other, 3, 1});
  });
}

/// The i-th opening here is matched with the i-th there, also when one side is several openings ahead.
TEST_P(Matching, the_first_opening_meets_the_first_and_the_second_the_second) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr int kOpenings = 4;
    const Buffer buffer(context, one);
    for (std::uint64_t opening = 1; opening <= kOpenings; ++opening) {
      if (context.rank() == 0) {
        Sender sender = context.sender(1, kTag, buffer.all());
        put_once(sender, buffer.all(), {0, kTag, opening});
        sender.close();
        EXPECT_EQ(sender.epoch(), 1U);
      } else {
        Receiver receiver = context.receiver(0, kTag, buffer.all());
        expect_once(receiver, {0, kTag, opening});
      }
    }
  });
}

/// The first end is closed, the second is open, and the peer has opened none of its own.
TEST_P(Matching, several_openings_ahead_keep_their_order) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr std::size_t kOpened = 0;
    HostStream host;
    const Buffer buffer(context, one, 2 * one.bytes);
    const auto slot = [&](std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
    if (context.rank() == 0) {
      fill(bytes_of(slot(0)), {0, kTag, 1});
      fill(bytes_of(slot(1)), {0, kTag, 2});
      Sender first = context.sender(1, kTag, slot(0));
      first.put(Stream::host(host));
      expect_code(Code::timeout, [&] { first.close(1ms); });  // announced, but not completed
      Sender second = context.sender(1, kTag, slot(1));
      second.put(Stream::host(host));
      board().set(kOpened, 1);
      context.synchronize(Stream::host(host));
    } else {
      board().await(kOpened, 1);
      {
        Receiver first = context.receiver(0, kTag, slot(0));
        expect_once(first, {0, kTag, 1});
      }
      Receiver second = context.receiver(0, kTag, slot(1));
      expect_once(second, {0, kTag, 2});
    }
  });
}

/// An end that was closed before the peer opened its own is still the peer's match.
TEST_P(Matching, an_end_that_is_closed_already_is_not_skipped) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      { const Sender first = context.sender(1, kTag, buffer.all()); }
      board().set(kGo, 1);
      Sender second = context.sender(1, kTag, buffer.all());
      put_once(second, buffer.all(), {0, kTag, 2});
    } else {
      board().await(kGo, 1);
      Receiver first = context.receiver(0, kTag, buffer.all());
      expect_code(Code::closed, [&] { first.wait({}); });  // its final epoch is 0
      first.close();
      Receiver second = context.receiver(0, kTag, buffer.all());
      expect_once(second, {0, kTag, 2});
    }
  });
}

TEST_P(Matching, tags_of_different_scopes_do_not_collide) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Scope halo = context.scope("halo");
    Scope library = context.scope("library");
    const Buffer buffer(context, one, 3 * one.bytes);
    const auto slot = [&](std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
    if (context.rank() == 0) {
      Sender third = library.sender(1, kTag, slot(2));
      Sender first = context.sender(1, kTag, slot(0));
      Sender second = halo.sender(1, kTag, slot(1));
      put_once(first, slot(0), {0, kTag, 1});
      put_once(second, slot(1), {0, kTag, 2});
      put_once(third, slot(2), {0, kTag, 3});
    } else {
      Receiver first = context.receiver(0, kTag, slot(0));
      Receiver second = context.scope("halo").receiver(0, kTag, slot(1));  // the same name is the same scope
      Receiver third = library.receiver(0, kTag, slot(2));
      expect_once(first, {0, kTag, 1});
      expect_once(second, {0, kTag, 2});
      expect_once(third, {0, kTag, 3});
    }
  });
}

TEST_P(Matching, a_channel_to_oneself_works) {
  Case alone = GetParam();
  alone.ranks = 1;
  run_peers(alone.peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer source(context, one);
    const Buffer target(context, one);
    Receiver receiver = context.receiver(0, 1, target.all());
    Sender sender = context.sender(0, 1, source.all());
    put_once(sender, source.all(), {0, 1, 1});
    expect_once(receiver, {0, 1, 1});
  });
}

/// 26 neighbours of a 2x2x2 periodic mesh: between two ranks many channels, told apart by their tags.
TEST_P(Matching, twenty_six_channels_per_rank_at_eight_ranks) {
  Case eight = GetParam();
  eight.ranks = 8;
  run_peers(eight.peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    constexpr Tag kNeighbours = 26;
    const auto shift = [](Tag direction) { return direction < 13 ? direction : direction + 1; };  // 13 is no shift
    const auto neighbour = [&](Tag direction) {
      const Tag code = shift(direction);
      // A digit per axis: one down, here, one up; of two ranks on an axis, down and up are the same.
      const int mask = (code % 3 != 1 ? 1 : 0) | (code / 3 % 3 != 1 ? 2 : 0) | (code / 9 != 1 ? 4 : 0);
      return context.rank() ^ mask;
    };
    const Buffer source(context, one, kNeighbours * one.bytes);
    const Buffer target(context, one, kNeighbours * one.bytes);
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    for (Tag d = 0; d < kNeighbours; ++d) {
      senders.push_back(context.sender(neighbour(d), d, source.all().slice(d * one.bytes, one.bytes)));
      receivers.push_back(context.receiver(neighbour(d), d, target.all().slice(d * one.bytes, one.bytes)));
    }
    for (std::uint64_t epoch = 1; epoch <= 10; ++epoch) {
      for (Tag d = 0; d < kNeighbours; ++d) {
        order.run([slot = senders[d].acquire(order.stream()), stamp = Stamp{context.rank(), d, epoch}] {
          fill(bytes_of(slot), stamp);
        });
        senders[d].put(order.stream());
      }
      for (Tag d = 0; d < kNeighbours; ++d) {
        order.run([slot = receivers[d].wait(order.stream()), stamp = Stamp{neighbour(d), d, epoch}] {
          expect_and_poison(slot, stamp);
        });
        receivers[d].release(order.stream());
      }
    }
    context.synchronize(order.stream());
  });
}

TEST_P(Matching, a_third_rank_asleep_delays_no_connection_between_two_others) {
  Case three = GetParam();
  three.ranks = 3;
  run_peers(three.peers(), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 2) return board().await(kGo, 2);  // in user code, and not in ours
    const Rank other = 1 - context.rank();
    const Buffer source(context, one);
    const Buffer target(context, one);
    {
      Sender sender = context.sender(other, 1, source.all());
      Receiver receiver = context.receiver(other, 1, target.all());
      Plan plan = context.plan();
      plan.add(sender).add(receiver).commit({});
      fill(source.bytes(), {context.rank(), 1, 1});
      plan.start({});
      plan.wait({});
      EXPECT_EQ(difference(target.bytes(), {other, 1, 1}), "");
      plan.release({});
    }
    board().word(kGo).fetch_add(1);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Matching, testing::ValuesIn(stream_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Matching, full_cases([] { return on(all_grounds(), memory_cases()); }), CaseName());

}  // namespace
