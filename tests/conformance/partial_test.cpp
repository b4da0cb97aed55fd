// SPDX-License-Identifier: Apache-2.0
// Parts of a slot: they land where they belong, the rest of the slot stays as it was, and no bytes signal exactly once.
#include <algorithm>
#include <random>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

struct Part {
  std::size_t offset;
  std::size_t bytes;
};

/// Edges, the whole, nothing, and some that a fixed seed chose.
std::vector<Part> parts_of(std::size_t slot) {
  std::vector<Part> parts = {{0, slot}, {0, 0}, {slot, 0}, {slot / 2, 0}, {0, slot / 2}, {slot / 2, slot - slot / 2}};
  if (slot > 0) {
    parts.push_back({0, 1});
    parts.push_back({slot - 1, 1});
  }
  std::mt19937 random(20261121);
  for (int i = 0; i < 20; ++i) {
    const std::size_t offset = random() % (slot + 1);
    parts.push_back({offset, random() % (slot - offset + 1)});
  }
  return parts;
}

class Parts : public testing::TestWithParam<Case> {};

void expect_only_part(const Slice& slot, Part part, const Stamp& stamp) {
  const auto bytes = bytes_of(slot);
  EXPECT_EQ(unlike_poison(bytes.first(part.offset)), "") << "before the part";
  EXPECT_EQ(difference(bytes.subspan(part.offset, part.bytes), stamp, part.offset), "") << "in the part";
  EXPECT_EQ(unlike_poison(bytes.subspan(part.offset + part.bytes)), "") << "after the part";
  poison(bytes);
}

void send_parts(Context& context, const Case& one) {
  Order order(one);
  const Buffer buffer(context, one);
  Sender sender = context.sender(1, kTag, buffer.all(), {.depth = one.depth});
  std::uint64_t epoch = 0;
  for (const Part& part : parts_of(one.bytes)) {
    ++epoch;
    order.run([slot = sender.acquire(order.stream()), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
    sender.put(order.stream(), part.offset, part.bytes);
  }
  context.synchronize(order.stream());
}

void check_parts(Context& context, const Case& one) {
  Order order(one);
  const Buffer buffer(context, one);
  Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = one.depth});
  std::uint64_t epoch = 0;
  for (const Part& part : parts_of(one.bytes)) {
    ++epoch;
    order.run([slot = receiver.wait(order.stream()), part, epoch] { expect_only_part(slot, part, {0, kTag, epoch}); });
    receiver.release(order.stream());
  }
  context.synchronize(order.stream());
}

void pass_parts(Context& context, const Case& one) {
  context.rank() == 0 ? send_parts(context, one) : check_parts(context, one);
}

TEST_P(Parts, land_where_they_belong_and_leave_the_rest_untouched) {
  run_peers(GetParam().peers(), [](Context& context) { pass_parts(context, GetParam()); });
}

/// On each path to memory that cannot be mapped: by the kernel's copy alone, or large parts by either.
class Paths : public testing::TestWithParam<Case> {};

TEST_P(Paths, a_tiny_bounce_limit_changes_nothing_that_is_seen) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_BOUNCE_MAX=1"};
  run_peers(peers, [](Context& context) { pass_parts(context, GetParam()); });
}

TEST_P(Paths, a_huge_bounce_limit_changes_nothing_that_is_seen) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_BOUNCE_MAX=1g"};
  run_peers(peers, [](Context& context) { pass_parts(context, GetParam()); });
}

TEST_P(Paths, copies_past_the_cache_change_nothing_that_is_seen) {
  Peers peers = GetParam().peers();
  peers.environment = {"SLUICE_NONTEMPORAL_MIN=1"};
  run_peers(peers, [](Context& context) { pass_parts(context, GetParam()); });
}

class Nothing : public testing::TestWithParam<Case> {};

TEST_P(Nothing, a_put_of_no_bytes_signals_exactly_once) {
  run_peers(GetParam().peers(), [](Context& context) {
    ChannelEnd end(context, GetParam());
    constexpr std::size_t kAsked = 0;
    if (end.first) {
      for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
        board().await(kAsked, epoch);
        end.sender.put(end.stream(), 0, 0);
      }
      context.synchronize(end.stream());
      board().meet(context);
    } else {
      for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
        EXPECT_FALSE(end.receiver.test()) << "epoch " << epoch << " came before it was put";
        board().set(kAsked, epoch);
        EXPECT_TRUE(end.receiver.wait_for(10s));
        EXPECT_EQ(unlike_poison(end.buffer.bytes()), "");
        end.receiver.release(end.stream());
      }
      EXPECT_FALSE(end.receiver.test());
      context.synchronize(end.stream());
      board().meet(context);
    }
  });
}

TEST_P(Nothing, a_part_outside_the_slot_is_refused) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    if (!end.first) {
      EXPECT_EQ(difference(bytes_of(end.receiver.wait({})), {0, kTag, 1}), "");
      return;
    }
    const std::vector<Part> outside = {
        {0, one.bytes + 1}, {1, one.bytes}, {one.bytes + 1, 0}, {std::size_t(-1), 2}, {2, std::size_t(-1)}};
    for (const Part& part : outside) {
      const auto error =
          expect_code(Code::bad_argument, [&] { end.sender.put(end.stream(), part.offset, part.bytes); });
      if (!error) continue;
      EXPECT_EQ(error->peer(), 1);
      EXPECT_EQ(error->tag(), kTag);
      EXPECT_EQ(error->epoch(), 1U);
    }
    EXPECT_EQ(end.sender.epoch(), 0U);  // nothing was changed
    end.order.run([slot = end.sender.acquire(end.stream())] { fill(bytes_of(slot), {0, kTag, 1}); });
    end.sender.put(end.stream());
    context.synchronize(end.stream());
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Parts,
                         testing::ValuesIn(with_sizes(with_depths(memory_cases(), {2}), {13, 4096, 100'000})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Parts,
                         testing::ValuesIn(on({{"posted", "posted"}, {"rung", "rung"}},
                                              with_depths(stream_cases(), {8}))),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(
    Full, Parts, full_cases([] {
      return with_sizes(with_depths(on(all_grounds(), memory_cases()), {1, 2, 8}), {0, 1, 8, 13, 4097, 1024 * 1024});
    }),
    CaseName());

std::vector<Case> paths(const std::vector<std::size_t>& sizes) {
  std::vector<Case> cases = with_sizes(memory_cases(), sizes);
  std::erase_if(cases, [](const Case& one) { return one.ground.name != "shm" || !one.user; });
  return with_depths(cases, {3});
}
INSTANTIATE_IN_ITS_RANKS(Quick, Paths, testing::ValuesIn(paths({4097})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Paths, full_cases([] { return paths({1, 13, 64, 1024 * 1024}); }), CaseName());

INSTANTIATE_IN_ITS_RANKS(Quick, Nothing, testing::ValuesIn(memory_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Nothing, full_cases([] {
                           return with_depths(on(all_grounds(), memory_cases()), {1, 8});
                         }),
                         CaseName());

}  // namespace
