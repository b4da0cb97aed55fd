// SPDX-License-Identifier: Apache-2.0
// `wait` number n lets later work go on only after every byte of epoch n is visible to it.
#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

int epochs_of(const Case& one) {
  if (one.bytes < 1024 * 1024) return 3 * one.depth + 70;
  return one.depth + (one.bytes == 1024 * 1024 ? 12 : 2);
}

class Epochs : public testing::TestWithParam<Case> {};
class OneWay : public testing::TestWithParam<Case> {};

/// Each rank sends to the one on its right, and checks what comes from its left.
void pass_round_the_ring(Context& context, const Case& one) {
  Order order(one);
  const Stream stream = order.stream();
  const int size = context.size();
  const Rank right = (context.rank() + 1) % size;
  const Rank left = (context.rank() + size - 1) % size;
  const Buffer source(context, one);
  const Buffer target(context, one);
  Sender sender = context.sender(right, kTag, source.all(), {.depth = one.depth});
  Receiver receiver = context.receiver(left, kTag, target.all(), {.depth = one.depth});
  for (int n = 1; n <= epochs_of(one); ++n) {
    const auto epoch = static_cast<std::uint64_t>(n);
    order.run(
        [slot = sender.acquire(stream), stamp = Stamp{context.rank(), kTag, epoch}] { fill(bytes_of(slot), stamp); });
    sender.put(stream);
    order.run([slot = receiver.wait(stream), stamp = Stamp{left, kTag, epoch}] { expect_and_poison(slot, stamp); });
    receiver.release(stream);
    EXPECT_EQ(sender.epoch(), epoch);
    EXPECT_EQ(receiver.epoch(), epoch);
  }
  context.synchronize(stream);
}

TEST_P(Epochs, every_byte_is_there_when_wait_lets_go_on) {
  run_peers(GetParam().peers(), [](Context& context) { pass_round_the_ring(context, GetParam()); });
}

/// The epochs that the enqueued waits and checks need arrive while the receiver's host is asleep.
void run_ahead(Context& context, const Case& one) {
  Order order(one);
  const Stream stream = order.stream();
  const Buffer buffer(context, one);
  if (context.rank() == 0) {
    Sender sender = context.sender(1, kTag, buffer.all(), {.depth = one.depth});
    for (int n = 1; n <= epochs_of(one); ++n) {
      order.run([slot = sender.acquire(stream), n] { fill(bytes_of(slot), {0, kTag, static_cast<std::uint64_t>(n)}); });
      sender.put(stream);
    }
    context.synchronize(stream);
  } else {
    Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = one.depth});
    for (int n = 1; n <= epochs_of(one); ++n) {
      order.run([slot = receiver.wait(stream), n] {
        expect_and_poison(slot, {0, kTag, static_cast<std::uint64_t>(n)});
      });
      receiver.release(stream);
    }
    context.synchronize(stream);
  }
}

TEST_P(OneWay, a_sender_that_runs_ahead_is_read_in_order) {
  Peers peers = GetParam().peers();
  if (GetParam().bytes > 1024 * 1024) peers.limit = 60s;
  run_peers(peers, [](Context& context) { run_ahead(context, GetParam()); });
}

class Lockstep : public testing::TestWithParam<Case> {};

/// Each epoch answers the one before: a signal or a credit that is lost is not made up for by the next.
TEST_P(Lockstep, every_signal_is_raised) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Stream stream = order.stream();
    const Rank other = 1 - context.rank();
    const Buffer source(context, one);
    const Buffer target(context, one);
    Sender sender = context.sender(other, kTag, source.all(), {.depth = one.depth});
    Receiver receiver = context.receiver(other, kTag, target.all(), {.depth = one.depth});
    for (std::uint64_t epoch = 1; epoch <= 200; ++epoch) {
      if (context.rank() == 1) {
        order.run([slot = receiver.wait(stream), epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
        receiver.release(stream);
      }
      order.run([slot = sender.acquire(stream), rank = context.rank(), epoch] {
        fill(bytes_of(slot), {rank, kTag, epoch});
      });
      sender.put(stream);
      if (context.rank() == 0) {
        order.run([slot = receiver.wait(stream), epoch] { expect_and_poison(slot, {1, kTag, epoch}); });
        receiver.release(stream);
      }
    }
    context.synchronize(stream);
  });
}

const std::vector<std::size_t> kSizes = {0, 1, 8, 13, 4096, 4097, 1024 * 1024};

INSTANTIATE_IN_ITS_RANKS(Quick, Epochs,
                         testing::ValuesIn(with_sizes(with_depths(memory_cases(), {2}), {1, 8, 4097, 1024 * 1024})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(QuickDepths, Epochs,
                         testing::ValuesIn(with_sizes(with_depths(stream_cases(), {1, 8}), {0, 13})), CaseName());

/// Every two values of size, depth, number of ranks, memory and stream meet in one of them (matrix.py checks it).
std::vector<Case> paired_cases() {
  const std::vector<int> depths = {1, 2, 8};
  const std::vector<int> ranks = {1, 2, 4};
  std::vector<Case> cases;
  for (std::size_t size = 0; size < kSizes.size(); ++size) {
    for (std::size_t depth = 0; depth < depths.size(); ++depth) {
      Case one{.ground = grounds()[(size + depth) % 2]};
      one.host = (size / 2 + depth) % 2 != 0;
      one.user = (size + depth / 2) % 2 != 0;
      one.ranks = ranks[(size + depth) % ranks.size()];
      one.depth = depths[depth];
      one.bytes = kSizes[size];
      cases.push_back(one);
    }
  }
  return cases;
}
INSTANTIATE_IN_ITS_RANKS(QuickPairs, Epochs, testing::ValuesIn(paired_cases()), CaseName());

INSTANTIATE_IN_ITS_RANKS(Quick, OneWay,
                         testing::ValuesIn(with_sizes(with_depths(memory_cases(), {1, 8}), {13, 1024 * 1024})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, OneWay,
                         testing::ValuesIn(on({{"posted", "posted"}, {"rung", "rung"}},
                                              with_sizes(with_depths(stream_cases(), {1, 8}), {0, 4096}))),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, OneWay, full_cases([] {
                           return with_sizes(with_depths(on(all_grounds(), memory_cases()), {1, 2, 8}), kSizes);
                         }),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(QuickRanks, Epochs, testing::ValuesIn(with_sizes(with_ranks(stream_cases(), {1, 4}), {4096})),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Epochs,
                         testing::ValuesIn(on({{"posted", "posted"}, {"rung", "rung"}},
                                              with_sizes(with_depths(stream_cases(), {1, 8}), {0, 4096}))),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(
    Full, Epochs, full_cases([] {
      return with_ranks(with_sizes(with_depths(on(all_grounds(), memory_cases()), {1, 2, 8}), kSizes), {1, 2, 4});
    }),
    CaseName());

std::vector<Case> large() {
  std::vector<Case> cases;
  for (const Ground& ground : grounds()) {
    for (const bool user : {false, true}) {
      cases.push_back({.ground = ground, .user = user, .bytes = 64 * 1024 * 1024});
    }
  }
  return cases;
}
INSTANTIATE_IN_ITS_RANKS(Large, OneWay, testing::ValuesIn(large()), CaseName());

INSTANTIATE_IN_ITS_RANKS(Quick, Lockstep, testing::ValuesIn(memory_cases()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Lockstep, full_cases([] {
                           return with_depths(on(all_grounds(), memory_cases()), {1, 8});
                         }),
                         CaseName());

}  // namespace
