// SPDX-License-Identifier: Apache-2.0
// Verbs of several epochs: each epoch is what it is by the verbs of one.
#include <algorithm>
#include <vector>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kBatchWanted = 0;  // on the board: the number of puts wanted
constexpr std::size_t kBatchEnds = 1;    // the other end has closed

class Batches : public testing::TestWithParam<Case> {};

std::size_t slot_count(const Case& one) { return static_cast<std::size_t>(one.depth); }

/// 1, 2, ... as many as there are slots, and again.
std::size_t batch_size(std::uint64_t batch, const Case& one) { return 1 + batch % slot_count(one); }

/// Fills `count` source slots in the order of the stream, and puts them.
void put_batch(ChannelEnd& end, std::size_t count) {
  const Batch slots = end.sender.acquire(end.stream(), count);
  EXPECT_EQ(slots.size(), count);
  EXPECT_EQ(slots.first(), end.sender.epoch() + 1);
  end.order.run([slots] {
    for (std::size_t i = 0; i < slots.size(); ++i) fill(bytes_of(slots[i]), {0, kTag, slots.first() + i});
  });
  end.sender.put(end.stream(), count);
}

/// Asserts that every byte is that of its epoch.
void expect_batch(const Batch& slots) {
  std::uint64_t epoch = slots.first();
  for (const Slice slot : slots) expect_and_poison(slot, {0, kTag, epoch++});
  EXPECT_EQ(epoch, slots.first() + slots.size());
}

/// The counts of both ends differ, so that batches of one end begin and end inside those of the other, and wrap.
TEST_P(Batches, carry_every_byte_of_every_epoch) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const std::uint64_t epochs = one.times(300) / 4 * slot_count(one);
    ChannelEnd end(context, one);
    for (std::uint64_t batch = 0, epoch = 0; epoch < epochs; ++batch) {
      const std::size_t count =
          std::min<std::size_t>(batch_size(end.first ? 2 * batch + 1 : batch, one), epochs - epoch);
      if (end.first) {
        put_batch(end, count);
      } else {
        const Batch slots = end.receiver.wait(end.stream(), count);
        EXPECT_EQ(slots.size(), count);
        EXPECT_EQ(slots.first(), epoch + 1);
        end.order.run([slots] { expect_batch(slots); });
        end.receiver.release(end.stream(), count);
      }
      epoch += count;
      EXPECT_EQ(end.first ? end.sender.epoch() : end.receiver.epoch(), epoch);
    }
    context.synchronize(end.stream());
  });
}

TEST_P(Batches, mix_with_the_verbs_of_one_epoch) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    std::uint64_t epoch = 0;
    for (int round = 0; round < 10; ++round) {
      const bool by_one = (round % 2 == 0) == end.first;
      if (by_one) {
        for (std::size_t i = 0; i < slot_count(one); ++i) {
          ++epoch;
          if (end.first) {
            end.order.run([slot = end.sender.acquire(end.stream()), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
            end.sender.put(end.stream());
          } else {
            end.order.run([slot = end.receiver.wait(end.stream()), epoch] {
              expect_and_poison(slot, {0, kTag, epoch});
            });
            end.receiver.release(end.stream());
          }
        }
      } else if (end.first) {
        put_batch(end, slot_count(one));
        epoch += slot_count(one);
      } else {
        end.order.run([slots = end.receiver.wait(end.stream(), slot_count(one))] { expect_batch(slots); });
        end.receiver.release(end.stream(), slot_count(one));
        epoch += slot_count(one);
      }
    }
    context.synchronize(end.stream());
  });
}

/// The host forms take exactly what has landed.
TEST_P(Batches, are_all_that_has_landed_and_nothing_changes_where_nothing_has) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    std::uint64_t epoch = 0;
    for (std::uint64_t round = 1; round <= 8; ++round) {
      const std::size_t count = batch_size(round, one);
      if (end.first) {
        board().await(kBatchWanted, epoch + count);
        put_batch(end, count);
        context.synchronize(end.stream());
        end.sender.drain(10s);
        board().meet(context);
      } else {
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(end.receiver.test_some().empty());
        EXPECT_TRUE(end.receiver.wait_some(1ms).empty());
        EXPECT_EQ(end.receiver.epoch(), epoch);
        board().set(kBatchWanted, epoch + count);
        board().meet(context);
        // A network may still have to tell what has arrived.
        for (std::size_t left = count; left > 0;) {
          const Batch landed = round % 2 == 0 ? end.receiver.wait_some(60s) : end.receiver.test_some();
          if (!one.ground.network && !landed.empty()) {
            EXPECT_EQ(landed.size(), count);
          }
          EXPECT_EQ(landed.first(), epoch + 1 + (count - left));
          expect_batch(landed);
          left -= std::min(left, landed.size());
          end.receiver.release({}, landed.size());
        }
      }
      epoch += count;
      if (!end.first) {
        EXPECT_EQ(end.receiver.epoch(), epoch);
      }
    }
    board().meet(context);
  });
}

/// A receiver that keeps all slots but one: a put that waited for the credit of all epochs would wait for ever, and one
/// that waited for none would overwrite those that are kept.
TEST_P(Batches, go_as_credits_come) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const std::uint64_t epochs = 3 * slot_count(one);
    ChannelEnd end(context, one);
    if (end.first) {
      for (int batch = 0; batch < 3; ++batch) put_batch(end, slot_count(one));
    } else {
      std::vector<Slice> slots;
      for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
        slots.push_back(end.receiver.wait(end.stream()));
        if (epoch < slot_count(one)) continue;
        const std::uint64_t oldest = epoch - slot_count(one) + 1;
        end.order.run([slot = slots[oldest - 1], oldest] {
          EXPECT_EQ(difference(bytes_of(slot), {0, kTag, oldest}), "");
        });
        end.receiver.release(end.stream());
      }
    }
    context.synchronize(end.stream());
    board().meet(context);
  });
}

/// Their source may be overwritten at once, and the sender may have more slots than the receiver.
TEST_P(Batches, may_be_larger_than_the_target) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    Case deep = one;
    if (context.rank() == 0) deep.depth = 2 * one.depth + 1;
    ChannelEnd end(context, deep);
    const std::uint64_t epochs = 4 * (2 * slot_count(one) + 1);
    if (end.first) {
      for (int batch = 0; batch < 4; ++batch) put_batch(end, slot_count(deep));
    } else {
      for (std::uint64_t epoch = 1; epoch <= epochs; ++epoch) {
        end.order.run([slot = end.receiver.wait(end.stream()), epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
        end.receiver.release(end.stream());
      }
    }
    context.synchronize(end.stream());
    board().meet(context);
  });
}

TEST_P(Batches, of_a_wrong_number_are_refused_and_change_nothing) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    const std::size_t many = slot_count(one) + 1;
    if (end.first) {
      for (const std::size_t count : {many, ~std::size_t{0}}) {
        const auto error = expect_code(Code::bad_argument, [&] { end.sender.put(end.stream(), count); });
        EXPECT_EQ(error ? error->tag() : 0, kTag);
        expect_code(Code::bad_argument, [&] { end.sender.acquire(end.stream(), count); });
      }
      end.sender.put(end.stream(), 0);
      EXPECT_TRUE(end.sender.acquire(end.stream(), 0).empty());
      EXPECT_EQ(end.sender.epoch(), 0U);
      put_batch(end, slot_count(one));
    } else {
      expect_code(Code::bad_argument, [&] { end.receiver.wait(end.stream(), many); });
      EXPECT_TRUE(end.receiver.wait(end.stream(), 0).empty());
      EXPECT_EQ(end.receiver.epoch(), 0U);
      expect_code(Code::misuse, [&] { end.receiver.release(end.stream(), 1); });
      end.order.run([slots = end.receiver.wait(end.stream(), slot_count(one))] { expect_batch(slots); });
      const auto error = expect_code(Code::misuse, [&] { end.receiver.release(end.stream(), many); });
      EXPECT_EQ(error ? error->epoch() : 0, many);
      end.receiver.release(end.stream(), 0);
      end.receiver.release(end.stream(), slot_count(one));  // nothing was released before
      expect_code(Code::misuse, [&] { end.receiver.release(end.stream(), 1); });
    }
    context.synchronize(end.stream());
    board().meet(context);
    Sender no_sender;
    Receiver no_receiver;
    expect_code(Code::misuse, [&] { no_sender.put({}, 1); });
    expect_code(Code::misuse, [&] { no_sender.acquire({}, 1); });
    expect_code(Code::misuse, [&] { no_receiver.wait({}, 1); });
    expect_code(Code::misuse, [&] { no_receiver.release({}, 1); });
    expect_code(Code::misuse, [&] { no_receiver.test_some(); });
    expect_code(Code::misuse, [&] { no_receiver.wait_some(1ms); });
  });
}

/// The sender closes after half of what is waited for: that half is good.
TEST_P(Batches, end_where_the_sender_has_closed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const std::size_t half = slot_count(one) / 2;
    ChannelEnd end(context, one);
    if (end.first) {
      put_batch(end, half);
      context.synchronize(end.stream());
      board().await(kGo, 1);
      end.sender.close();
      board().set(kBatchEnds, 1);
    } else if (one.host) {
      end.receiver.wait_connected();
      end.receiver.wait(end.stream(), slot_count(one));  // parked before the sender closes
      board().set(kGo, 1);
      expect_code(Code::closed, [&] { context.synchronize(end.stream()); });
      EXPECT_TRUE(end.receiver.closed());
    } else {
      board().set(kGo, 1);
      board().await(kBatchEnds, 1);
      expect_code(Code::closed, [&] { end.receiver.wait({}, slot_count(one)); });
      EXPECT_EQ(end.receiver.epoch(), 0U);
      std::size_t taken = 0;
      while (!end.receiver.closed()) {
        const Batch landed = end.receiver.wait_some(10s);
        expect_batch(landed);
        taken += landed.size();
        end.receiver.release({}, landed.size());
      }
      EXPECT_EQ(taken, half);
      EXPECT_TRUE(end.receiver.wait_some(60s).empty());
    }
    board().meet(context);
  });
}

/// The receiver closes after it has released one epoch: of the second batch one more may move.
TEST_P(Batches, end_where_the_receiver_has_closed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    if (end.first) {
      put_batch(end, slot_count(one));
      const auto error = expect_code(Code::misuse, [&] {
        end.sender.put(end.stream(), slot_count(one));
        context.synchronize(end.stream());
      });
      EXPECT_EQ(error ? error->peer() : -1, 1);
      expect_code(Code::misuse, [&] { end.sender.put(end.stream(), 1); });
      board().meet(context);
    } else {
      end.receiver.wait({}, slot_count(one));
      end.receiver.release({});
      expect_for(10ms, [] { return true; });  // usually the second put is waiting by now
      end.receiver.close();
      poison(end.buffer.bytes());  // closed: no put writes here any more
      board().meet(context);
      EXPECT_EQ(unlike_poison(end.buffer.bytes()), "");
    }
  });
}

/// Half of what is waited for comes, and the other half does not within the limit.
TEST_P(Batches, fail_as_their_channel_does) {
  Peers peers = with_untold(GetParam().peers());
  peers.timeout = 100ms;
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one);
    if (end.first) {
      end.sender.wait_connected();
      put_batch(end, slot_count(one) / 2);
      context.synchronize(end.stream());
      board().set(kGo, 1);
      expect_reported(context, Code::timeout);
      expect_code(Code::timeout, [&] { end.sender.acquire(end.stream(), 1); });
      expect_code(Code::timeout, [&] { end.sender.put(end.stream(), 1); });
    } else {
      end.receiver.wait_connected();
      board().await(kGo, 1);
      expect_code(Code::timeout, [&] {
        end.receiver.wait(end.stream(), slot_count(one));
        context.synchronize(end.stream());
      });
      expect_code(Code::timeout, [&] { end.receiver.wait(end.stream(), 1); });
      expect_code(Code::timeout, [&] { end.receiver.test_some(); });
      expect_code(Code::timeout, [&] { end.receiver.wait_some(10s); });
      expect_code(Code::timeout, [&] { end.receiver.release(end.stream(), 1); });
    }
    board().meet(context);
  });
}

/// Each epoch has its own length, and partial puts have theirs.
TEST_P(Batches, have_the_lengths_of_their_epochs) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    ChannelEnd end(context, one, {.lengths = true});
    if (end.first) {
      for (int round = 0; round < 3; ++round) {
        put_batch(end, slot_count(one) - 1);
        end.sender.acquire(end.stream());
        end.sender.put(end.stream(), 1, 3);
      }
      context.synchronize(end.stream());
    } else {
      for (int round = 0; round < 3; ++round) {
        const Batch slots = end.receiver.wait(end.stream(), slot_count(one));
        end.order.run([&, slots] {
          for (std::size_t i = 0; i < slots.size(); ++i)
            EXPECT_EQ(end.receiver.bytes(slots.first() + i), i + 1 < slots.size() ? one.bytes : 3);
          EXPECT_EQ(end.receiver.bytes(), 3U);
        });
        context.synchronize(end.stream());
        expect_code(Code::misuse, [&] { end.receiver.bytes(slots.first() + slots.size()); });
        end.receiver.release(end.stream(), slots.size());
      }
      context.synchronize(end.stream());
    }
    board().meet(context);
  });
}

std::vector<Case> batch_cases() { return with_depths(memory_cases(), {4}); }

INSTANTIATE_IN_ITS_RANKS(Quick, Batches, testing::ValuesIn(with_sizes(batch_cases(), {8, 4097})), CaseName());
INSTANTIATE_IN_ITS_RANKS(QuickDepths, Batches, testing::ValuesIn(with_depths(stream_cases(), {3, 8})), CaseName());
// Copied by both ranks.
INSTANTIATE_IN_ITS_RANKS(QuickLarge, Batches,
                         testing::Values(Case{
                             .ground = {"shm", "shm", true}, .user = true, .depth = 4, .bytes = 100'000}),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Batches, testing::ValuesIn(on(wrapped_grounds(), with_depths(stream_cases(), {4}))),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Batches, full_cases([] {
                           return with_sizes(with_depths(on(all_grounds(), memory_cases()), {2, 8}), {13, 100'000});
                         }),
                         CaseName());

}  // namespace
