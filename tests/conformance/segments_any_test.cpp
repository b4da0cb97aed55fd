// SPDX-License-Identifier: Apache-2.0
// WaitAny over channels, segments and counters together: rank 1 waits for what rank 0 does.
#include <algorithm>
#include <random>
#include <set>

#include "tests/conformance/random_seed.hpp"
#include "tests/conformance/segments.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class MixedAny : public testing::TestWithParam<Case> {};

constexpr std::size_t kMixedBytes = 400;
constexpr std::size_t kMixedSlot = 64;
constexpr const char* kMixedWindow = "mixed";

/// A channel, segments and a window with a counter, from rank 0 to rank 1.
struct MixedSide {
  explicit MixedSide(Context& in)
      : segments(in, MixedAny::GetParam(), kMixedBytes), slots(in.allocate(kMixedSlot)), words(in.allocate(kWord)) {
    if (in.rank() == 0) {
      sender = in.sender(1, 1, slots.all());
      target = in.target(1, kMixedWindow);
      target.wait_connected(15s);
    } else {
      receiver = in.receiver(0, 1, slots.all());
      window = in.window(kMixedWindow, words.all(), 1);
      any.add(receiver);
      any.add(segments.receiver, 0, 100);
      any.add(window, 0, 2);
      any.add(segments.receiver, 50, 100);
    }
    board().meet(in);  // a counter is reported for what it counts from `add` on
  }
  /// Rank 0.
  void notify_twice() {
    target.notify(segments.stream(), 0);
    target.notify(segments.stream(), 0);
    target.flush(segments.stream());
    segments.synchronize();
  }
  void close() {
    board().meet(segments.context);
    if (segments.context.rank() == 0) return target.close(15s);
    window.close(15s);
  }

  SegmentSide segments;
  Memory slots, words;
  Sender sender;
  Receiver receiver;
  Target target;
  Window window;
  WaitAny any;
};

TEST_P(MixedAny, the_one_that_comes_is_returned) {
  run_peers(GetParam().peers(), [](Context& context) {
    MixedSide side(context);
    const auto meet = [&] { board().meet(context); };
    if (context.rank() == 0) {
      meet();
      side.segments.put(50, 50);
      side.segments.synchronize();
      meet();
      side.segments.put(0, 50);
      meet();
      side.notify_twice();
      meet();
      side.segments.put(100, 50);
      meet();
      side.sender.put(side.segments.stream());
      meet();
      side.segments.put(20, 10);
      side.segments.synchronize();
    } else {
      const auto index = [&] {
        const auto got = side.any.wait(15s);
        return got ? static_cast<int>(got->index) : -1;
      };
      meet();
      EXPECT_TRUE(side.segments.receiver.wait_for(50, 50, 15s));
      EXPECT_FALSE(side.any.wait_for(0ns));
      meet();
      EXPECT_EQ(index(), 1);
      EXPECT_FALSE(side.any.wait_for(1ms));
      meet();
      const auto counted = side.any.wait(15s);
      ASSERT_TRUE(counted && counted->count);
      EXPECT_EQ(counted->index, 2U);
      EXPECT_FALSE(counted->closed());
      EXPECT_GE(*counted->count, 2U);
      EXPECT_FALSE(side.any.wait_for(0ns));
      meet();
      EXPECT_EQ(index(), 3);
      meet();
      EXPECT_EQ(index(), 0);
      side.receiver.release({});
      side.segments.receiver.release(20, 10);
      EXPECT_FALSE(side.any.wait_for(1ms));
      meet();
      EXPECT_EQ(index(), 1);
      EXPECT_EQ(side.any.left(), 4U);
    }
    side.close();
  });
}

TEST_P(MixedAny, wait_some_takes_all_that_have_come_once) {
  run_peers(GetParam().peers(), [](Context& context) {
    MixedSide side(context);
    if (context.rank() == 0) {
      side.segments.put(0, 150);
      side.sender.put(side.segments.stream());
      side.notify_twice();
    } else {
      std::multiset<std::size_t> indices;
      while (indices.size() < 4) {
        for (const auto& one : side.any.wait_some(15s)) indices.insert(one.index);
      }
      EXPECT_EQ(indices, (std::multiset<std::size_t>{0, 1, 2, 3}));
      EXPECT_TRUE(side.any.wait_some_for(1ms).empty());
      expect_code(Code::timeout, [&] { side.any.wait_some(1ms); });
      side.receiver.release({});
    }
    side.close();
  });
}

/// The waits are on a stream that is enqueued ahead; rank 0 puts the next one once the one before was seen.
TEST_P(MixedAny, a_stream_waits_for_the_one_that_comes) {
  run_peers(GetParam().peers(), [](Context& context) {
    MixedSide side(context);
    const std::vector<std::size_t> order = {2, 0, 1, 3, 0};  // channel, counter and ranges, by their indices
    constexpr std::size_t kMixedSeen = 3;                    // on the board
    if (context.rank() == 0) {
      for (std::size_t i = 0; i < order.size(); ++i) {
        board().await(kMixedSeen, i);
        if (order[i] == 0) side.sender.put(side.segments.stream());
        if (order[i] == 1) side.segments.put(0, 100);
        if (order[i] == 2) side.notify_twice();
        if (order[i] == 3) side.segments.put(100, 50);
      }
      board().await(kMixedSeen, order.size());
      side.segments.put(30, 100);  // waits until the stream has released the ranges
      side.segments.synchronize();
    } else {
      test::Order waits(GetParam().cuda ? GetParam() : on_host(GetParam()));
      const Stream stream = waits.stream();
      std::vector<std::size_t> seen;
      for (std::size_t i = 0; i < order.size(); ++i) {
        const auto ticket = side.any.wait(stream);
        waits.run([&, ticket, i] {
          seen.push_back(ticket.arrival()->index);
          EXPECT_EQ(ticket.arrival()->count.has_value(), order[i] == 2);
          EXPECT_EQ(ticket.arrival()->slot.has_value(), order[i] != 2);
        });
        // Range 3 needs the bytes of range 1, which must not be released before.
        if (order[i] != 1) side.any.release(stream, ticket);
        waits.run([i] { board().set(kMixedSeen, i + 1); });
        if (order[i] == 3) side.segments.receiver.release(stream, 0, 50);
      }
      context.synchronize(stream);
      EXPECT_EQ(seen, order);
      EXPECT_TRUE(side.segments.receiver.wait_for(30, 100, 15s));
    }
    side.close();
  });
}

TEST_P(MixedAny, wait_some_on_a_stream_takes_all_that_have_come_once) {
  run_peers(GetParam().peers(), [](Context& context) {
    MixedSide side(context);
    if (context.rank() == 0) {
      side.segments.put(0, 150);
      side.sender.put(side.segments.stream());
      side.notify_twice();
    } else {
      test::Order order(GetParam().cuda ? GetParam() : on_host(GetParam()));
      std::multiset<std::size_t> indices;
      while (indices.size() < 4) {
        const auto ticket = side.any.wait_some(order.stream());
        context.synchronize(order.stream());
        for (const auto& one : ticket.arrivals()) indices.insert(one.index);
      }
      EXPECT_EQ(indices, (std::multiset<std::size_t>{0, 1, 2, 3}));
      EXPECT_TRUE(side.any.wait_some_for(1ms).empty());
      side.receiver.release({});
    }
    side.close();
  });
}

TEST_P(MixedAny, ranges_of_a_closed_channel_are_reported_as_closed_once) {
  run_peers(GetParam().peers(), [](Context& context) {
    MixedSide side(context);
    if (context.rank() == 0) {
      side.segments.put(0, 100);
      side.segments.sender.close(15s);
      side.sender.close(15s);
    } else {
      std::multiset<std::size_t> arrived, closed;
      while (side.any.left() > 1) {  // the counter stays
        for (const auto& one : side.any.wait_some(15s)) (one.closed() ? closed : arrived).insert(one.index);
      }
      EXPECT_EQ(arrived, (std::multiset<std::size_t>{1}));
      EXPECT_EQ(closed, (std::multiset<std::size_t>{0, 1, 3}));
      EXPECT_FALSE(side.any.wait_for(1ms));
    }
    side.close();
  });
}

/// Rank 0 puts parts in a random order, some of them twice, and rank 1 takes what comes.
TEST_P(MixedAny, every_part_is_reported_once_for_each_put) {
  constexpr std::size_t kParts = 10;
  constexpr std::size_t kPart = kMixedBytes / kParts;
  const std::uint64_t seed = random_seed();
  const std::size_t rounds = quick_segments(GetParam()) ? 300 : 30;
  run_peers(GetParam().peers(), [=](Context& context) {
    std::mt19937_64 random(seed);
    SegmentSide side(context, GetParam(), kMixedBytes);
    if (context.rank() == 0) {
      for (std::size_t i = 0; i < rounds * kParts; ++i) side.put(i % rounds * 7 % kParts * kPart, kPart);
      side.synchronize();
      return;
    }
    WaitAny any;
    for (std::size_t part = 0; part < kParts; ++part) any.add(side.receiver, part * kPart, kPart);
    std::vector<std::uint32_t> puts(kParts);
    for (std::size_t left = rounds * kParts; left > 0;) {
      for (const auto& one : any.wait_some(15s)) {
        if (one.closed()) continue;  // it had its last put
        ASSERT_EQ(one.slot->data()[5], segment_byte(one.index * kPart + 5, ++puts[one.index]));
        std::fill_n(one.slot->data(), kPart, kReleasedByte);
        side.receiver.release(one.index * kPart, kPart);
        --left;
      }
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, MixedAny, testing::ValuesIn(of_segments()), CaseName());

}  // namespace
