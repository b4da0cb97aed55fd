// SPDX-License-Identifier: Apache-2.0
// WaitAny: rank 0 waits for whichever of its receivers comes first, two from each other rank.
#include <array>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kStep = 0;  // on the board: the step at which all are
constexpr int kOfEachRank = 2;    // channels from each rank

class Any : public testing::TestWithParam<Case> {};

std::size_t any_channels(const Context& context) {
  return static_cast<std::size_t>(kOfEachRank) * static_cast<std::size_t>(context.size() - 1);
}
Rank sender_of(std::size_t channel) { return static_cast<Rank>(channel) / kOfEachRank + 1; }
Tag tag_of(std::size_t channel) { return kTag + static_cast<Tag>(channel) % kOfEachRank; }

/// Rank 0: a receiver of each channel, by the channel's number.
struct Receivers {
  Receivers(Context& context, const Case& one, std::string_view contents = {}) {
    for (std::size_t channel = 0; channel < any_channels(context); ++channel) {
      const Buffer& buffer = *buffers.emplace_back(std::make_unique<Buffer>(context, one));
      all.push_back(context.receiver(sender_of(channel), tag_of(channel), buffer.all(),
                                     {.depth = one.depth, .contents = contents}));
    }
  }
  void check_and_release(const WaitAny::Arrival& got, std::uint64_t epoch) {
    expect_and_poison(*got.slot, {sender_of(got.index), tag_of(got.index), epoch});
    all[got.index].release({});
  }

  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<Receiver> all;
};

/// Another rank: one of its senders.
struct Worker {
  Worker(Context& context, const Case& one, std::size_t number, std::string_view contents = {})
      : channel(number), order(one), buffer(context, one),
        sender(context.sender(0, tag_of(number), buffer.all(), {.depth = one.depth, .contents = contents})) {}
  void put() {
    const Stamp stamp{sender_of(channel), tag_of(channel), sender.epoch() + 1};
    order.run([slot = sender.acquire(order.stream()), stamp] { fill(bytes_of(slot), stamp); });
    sender.put(order.stream());
  }

  std::size_t channel;
  test::Order order;
  const Buffer buffer;
  Sender sender;
};

/// A rank's channels, by number.
std::array<std::size_t, kOfEachRank> own_channels(const Context& context) {
  const auto first = static_cast<std::size_t>(kOfEachRank) * static_cast<std::size_t>(context.rank() - 1);
  return {first, first + 1};
}

/// In every second step the host sleeps when the put comes: each of the places where it sleeps has to be woken.
TEST_P(Any, the_one_that_comes_first_is_returned_with_its_bytes) {
  constexpr std::uint64_t kSteps = 12;
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const auto channel_at = [&](std::uint64_t step) { return (step * 3 + step / 4) % any_channels(context); };
    if (context.rank() == 0) {
      Receivers receivers(context, one);
      WaitAny any(receivers.all);
      std::vector<std::uint64_t> epochs(any_channels(context));
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        EXPECT_FALSE(any.wait_for(0ns));
        board().set(kStep, step);
        const auto got = any.wait(15s);
        ASSERT_TRUE(got && !got->closed());
        ASSERT_EQ(got->index, channel_at(step));
        receivers.check_and_release(*got, ++epochs[got->index]);
      }
      EXPECT_EQ(any.left(), any_channels(context));
      board().meet(context);
    } else {
      const auto [first, second] = own_channels(context);
      Worker workers[] = {{context, one, first}, {context, one, second}};
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        board().await(kStep, step);
        if (step % 2 == 0) std::this_thread::sleep_for(5ms);
        for (Worker& worker : workers) {
          if (worker.channel == channel_at(step)) worker.put();
        }
      }
      board().meet(context);
    }
  });
}

TEST_P(Any, one_that_has_closed_is_reported_once_after_its_last_epoch) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const auto puts_of = [](std::size_t channel) { return channel % 3; };
    if (context.rank() == 0) {
      Receivers receivers(context, one);
      WaitAny any(receivers.all);
      std::vector<std::uint64_t> epochs(any_channels(context));
      std::vector<int> closings(any_channels(context));
      board().set(kStep, 1);  // all receivers are open: a rank that has ended before would be lost
      while (const auto got = any.wait(15s)) {
        if (got->closed()) {
          EXPECT_EQ(epochs[got->index], puts_of(got->index));
          ++closings[got->index];
        } else {
          EXPECT_EQ(closings[got->index], 0);
          receivers.check_and_release(*got, ++epochs[got->index]);
        }
      }
      for (const int closed : closings) EXPECT_EQ(closed, 1);
      EXPECT_EQ(any.left(), 0U);
      EXPECT_FALSE(any.wait(15s));  // at once
    } else {
      board().await(kStep, 1);
      for (const std::size_t channel : own_channels(context)) {
        Worker worker(context, one, channel);
        for (std::size_t put = 0; put < puts_of(channel); ++put) worker.put();
        context.synchronize(worker.order.stream());
      }
    }
  });
}

TEST_P(Any, a_failed_one_throws_its_failure_once_and_the_others_go_on) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 0) {
      Receivers receivers(context, one, "as agreed");
      WaitAny any(receivers.all);
      std::size_t epochs = 0;
      int failures = 0;
      while (any.left() > 0) {
        try {
          const auto got = any.wait(15s);
          if (got && !got->closed()) {
            ++epochs;
            receivers.check_and_release(*got, 1);
          }
        } catch (const Error& reason) {
          EXPECT_EQ(reason.code(), Code::mismatch) << reason.what();
          EXPECT_EQ(reason.peer(), 1);
          EXPECT_EQ(reason.tag(), kTag);
          ASSERT_EQ(++failures, 1);
        }
      }
      EXPECT_EQ(failures, 1);
      EXPECT_EQ(epochs, any_channels(context) - 1);
      expect_code(Code::mismatch, [&] { context.check(); });
    } else {
      for (const std::size_t channel : own_channels(context)) {
        Worker worker(context, one, channel, channel == 0 ? "something else" : "as agreed");
        if (channel == 0) {
          expect_code(Code::mismatch, [&] { worker.sender.wait_connected(); });
          expect_code(Code::mismatch, [&] { context.check(); });
        } else {
          worker.put();
          context.synchronize(worker.order.stream());
        }
      }
    }
  });
}

TEST_P(Any, one_whose_peer_opens_late_keeps_no_other_waiting) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const std::size_t late = any_channels(context) - 1;
    if (context.rank() == 0) {
      Receivers receivers(context, one);
      WaitAny any;
      for (Receiver& receiver : receivers.all) any.add(receiver);
      for (std::size_t i = 0; i < late; ++i) {
        const auto got = any.wait(15s);
        ASSERT_TRUE(got && !got->closed());
        EXPECT_NE(got->index, late);
        receivers.check_and_release(*got, 1);
      }
      const auto reason = expect_code(Code::timeout, [&] { any.wait(1ms); });
      EXPECT_NE(std::string(reason ? reason->what() : "").find("not connected"), std::string::npos);
      EXPECT_FALSE(any.wait_for(1ms));
      EXPECT_EQ(any.left(), any_channels(context));
      board().set(kStep, 1);
      const auto got = any.wait(15s);
      ASSERT_TRUE(got && got->index == late);
      receivers.check_and_release(*got, 1);
      board().meet(context);
    } else {
      std::vector<std::unique_ptr<Worker>> workers;
      for (const std::size_t channel : own_channels(context)) {
        if (channel == late) board().await(kStep, 1);
        workers.push_back(std::make_unique<Worker>(context, one, channel));
        workers.back()->put();
      }
      board().meet(context);
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Any, testing::ValuesIn(with_ranks(stream_cases(), {2, 3})), CaseName());
INSTANTIATE_IN_ITS_RANKS(QuickUser, Any,
                         testing::Values(Case{
                             .ground = {"shm", "shm", true}, .user = true, .ranks = 3, .depth = 2, .bytes = 4097}),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Any, testing::ValuesIn(on(wrapped_grounds(), with_ranks(stream_cases(), {3}))),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Any, full_cases([] {
                           return with_depths(on(all_grounds(), with_ranks(memory_cases(), {4})), {1, 8});
                         }),
                         CaseName());

}  // namespace
