// SPDX-License-Identifier: Apache-2.0
// Mistakes of programs with plans of messages: each is found in every run, and its error names both ranks, the signal
// and the epoch.
#include <array>
#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/cases.hpp"
#include "tests/conformance/unr_cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class UnrMistakes : public testing::TestWithParam<Case> {
 public:
  /// False: the receiver's reset has not come in time, and nothing has changed.
  static bool starts(unr::Plan& plan) {
    try {
      plan.start();
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::misuse) << error.what();
      return false;
    }
  }
  /// Misuse that names the signal, both ranks, the tag and the epoch.
  template <class Call>
  static void expect_misuse(const OneWayPlan& side, const char* signal, std::uint64_t epoch, const char* what,
                            Call call) {
    const std::optional<Error> error = expect_code(Code::misuse, call);
    if (!error) return;
    const std::string text = error->what();
    EXPECT_NE(text.find("signal '" + std::string(signal) + "'"), std::string::npos) << text;
    EXPECT_NE(text.find(what), std::string::npos) << text;
    EXPECT_EQ(error->rank(), side.rank) << text;
    EXPECT_EQ(error->peer(), 1 - side.rank) << text;
    EXPECT_EQ(error->tag(), 7U) << text;
    EXPECT_EQ(error->epoch(), epoch) << text;
  }
};

TEST_P(UnrMistakes, a_reset_while_events_are_missing) {
  run_peers(GetParam().peers(), [](Context& context) {
    OneWayPlan side(context, GetParam());
    for (std::uint64_t round = 1; round <= 3; ++round) {
      if (side.rank == 1) {
        expect_misuse(side, "arrived", round, "has not arrived", [&] { side.signal.reset(side.stream()); });
        EXPECT_EQ(side.signal.epoch(), round);
      }
      board().meet(context);
      if (side.rank == 0) {
        expect_misuse(side, "sent", round, "has not started", [&] { side.signal.reset(side.stream()); });
        expect_misuse(side, "sent", round, "has not started", [&] { side.signal.wait(side.stream()); });
        expect_misuse(side, "sent", round, "has not started", [&] { (void)side.signal.wait_for(0ns); });
        fill(side.memory.bytes(), {0, kTag, round});
        side.plan.start(side.stream());
      }
      side.signal.wait(side.stream());
      side.signal.wait(side.stream());  // again: nothing happens
      if (side.rank == 1)
        side.order.run([&, round] { EXPECT_EQ(difference(side.memory.bytes(), {0, kTag, round}), ""); });
      context.synchronize(side.stream());
      board().meet(context);
      side.signal.reset(side.stream());
      EXPECT_EQ(side.signal.epoch(), round + 1);
    }
    board().meet(context);
  });
}

/// A message that has arrived counts, whether or not it was waited for.
TEST_P(UnrMistakes, none_is_a_reset_once_all_has_arrived) {
  run_peers(GetParam().peers(), [](Context& context) {
    OneWayPlan side(context, GetParam());
    for (std::uint64_t round = 1; round <= 2; ++round) {
      if (side.rank == 0) {
        side.plan.start(side.stream());
        EXPECT_TRUE(side.signal.wait_for(20s));  // all has arrived
      }
      board().meet(context);
      side.signal.reset(side.stream());
      context.synchronize(side.stream());
    }
    board().meet(context);
  });
}

TEST_P(UnrMistakes, more_events_than_those_of_the_signal) {
  run_peers(GetParam().peers(), [](Context& context) {
    OneWayPlan side(context, GetParam());
    if (side.rank == 0) {
      side.plan.start(side.stream());
      const auto again = [&] { side.plan.start(side.stream()); };
      expect_misuse(side, "sent", 1, "more than 2 events", again);
      side.signal.wait(side.stream());
      expect_misuse(side, "sent", 1, "more than 2 events", again);  // it was not reset
      EXPECT_EQ(side.plan.rounds(), 1U);
      side.signal.reset(side.stream());
      side.plan.start(side.stream());
      expect_misuse(side, "sent", 2, "more than 2 events", again);
    } else {
      for (int i = 0; i < 2; ++i) {
        side.signal.wait(side.stream());
        side.signal.reset(side.stream());
      }
    }
    context.synchronize(side.stream());
    board().meet(context);
  });
}

TEST_P(UnrMistakes, a_put_into_memory_that_the_receiver_has_not_freed) {
  if (GetParam().host) return;  // see UnrEarlyPuts
  run_peers(GetParam().peers(), [](Context& context) {
    OneWayPlan side(context, GetParam(), {.reset_within = 50ms});
    for (std::uint64_t round = 1; round <= 2; ++round) {
      if (side.rank == 0) {
        fill(side.memory.bytes(), {0, kTag, round});
        expect_within(20s, [&] { return starts(side.plan); });  // over a network the reset comes later
        side.signal.reset();
        board().set(kGo, round);
        expect_misuse(side, "arrived", round + 1, "was not reset", [&] { side.plan.start(); });
        EXPECT_EQ(side.plan.rounds(), round);
      } else {
        board().await(kGo, round);
        side.signal.wait();
        EXPECT_EQ(difference(side.memory.bytes(), {0, kTag, round}), "");
      }
      board().meet(context);
      EXPECT_EQ(difference(side.memory.bytes(), {0, kTag, round}), "");
      if (side.rank == 1) side.signal.reset();
      board().meet(context);  // the put of the next round is no mistake
    }
  });
}

/// Nothing is wrong if a credit may come late, or is waited for.
TEST_P(UnrMistakes, none_where_every_signal_is_reset_in_time) {
  run_peers(GetParam().peers(), [](Context& context) {
    OneWayPlan side(context, GetParam(), {.reset_within = 20s});
    for (std::uint64_t round = 1; round <= 20; ++round) {
      if (side.rank == 0) {
        side.order.run([&, round] { fill(side.memory.bytes(), {0, kTag, round}); });
        side.plan.start(side.stream());
      }
      side.signal.wait(side.stream());
      if (side.rank == 1)
        side.order.run([&, round] { EXPECT_EQ(difference(side.memory.bytes(), {0, kTag, round}), ""); });
      side.signal.reset(side.stream());
    }
    context.synchronize(side.stream());
    board().meet(context);
  });
}

TEST_P(UnrMistakes, messages_that_do_not_match) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Rank rank = context.rank();
    const Buffer memory(context, GetParam(), 64);
    const auto expect_mismatch = [&](const char* name, const char* what, auto record) {
      unr::Plan plan(context, name);
      unr::Signal arrived = plan.signal("arrived");
      record(plan, arrived);
      const auto error = expect_code(Code::mismatch, [&] { plan.commit(); });
      EXPECT_NE(std::string(error->what()).find(what), std::string::npos) << error->what();
      EXPECT_EQ(error->peer(), 1 - rank);
      board().meet(context);  // the peer has learned of it
      expect_code(Code::misuse, [&] { plan.start(); });
      plan.close();
    };
    expect_mismatch("bytes", "rank 0 sends to rank 1 with tag 7 64 bytes, and 56 bytes are received",
                    [&](unr::Plan& plan, const unr::Signal& arrived) {
                      if (rank == 0) plan.isend(memory.all(), 1, 7);
                      if (rank == 1) plan.irecv(memory.all().slice(0, 56), 0, 7, arrived);
                    });
    expect_mismatch("tags", "with tag", [&](unr::Plan& plan, const unr::Signal& arrived) {
      if (rank == 0) plan.isend(memory.all(), 1, 7);
      if (rank == 1) plan.irecv(memory.all(), 0, 8, arrived);
    });
    expect_mismatch("counts", "rank 0 sends to rank 1 with tag 7 2 messages, and 1 are received",
                    [&](unr::Plan& plan, const unr::Signal& arrived) {
                      for (int i = 0; i < 2 && rank == 0; ++i) plan.isend(memory.all(), 1, 7);
                      if (rank == 1) plan.irecv(memory.all(), 0, 7, arrived);
                    });
    expect_mismatch("exchange", "alltoallv number 1", [&](unr::Plan& plan, const unr::Signal& arrived) {
      const std::vector<int> ones(2, 1);
      const std::vector<int> places(2);
      const std::size_t bytes = rank == 0 ? 8 : 16;
      plan.alltoallv(memory.all(), ones, places, unr::Layout::of(bytes), memory.all(), ones, places,
                     unr::Layout::of(bytes), {}, arrived);
    });
  });
}

TEST_P(UnrMistakes, a_message_for_a_rank_that_has_none_with_us) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    const Buffer memory(context, GetParam(), 64);
    unr::Plan plan(context, "alone");
    if (context.rank() == 0) {
      plan.isend(memory.all(), 1, 7);
      const auto error = expect_code(Code::timeout, [&] { plan.commit({}, 30ms); });
      EXPECT_EQ(error->peer(), 1) << error->what();
      EXPECT_NE(std::string(error->what()).find("plan 'alone'"), std::string::npos) << error->what();
    } else {
      plan.commit();
    }
    board().meet(context);
  });
}

TEST_P(UnrMistakes, arguments_that_can_never_work) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Buffer memory(context, GetParam(), 64);
    const auto refused = [](auto call) { expect_code(Code::bad_argument, call); };
    refused([&] { const unr::Plan plan(context, ""); });
    unr::Plan plan(context, "wrong");
    unr::Plan other(context, "other");
    unr::Signal signal = plan.signal("signal", 3);
    refused([&] { (void)plan.signal("negative", -1); });
    refused([&] { plan.isend(memory.all(), context.size(), 1); });
    refused([&] { plan.isend(memory.all(), -2, 1); });
    refused([&] { plan.irecv(memory.all(), 0, 1, {}); });
    refused([&] { plan.irecv(memory.all(), 0, 1, other.signal("of another")); });
    refused([&] { plan.isend(memory.all(), 8, 2, unr::Layout::strided(2, 8, 24), 0, 1); });
    refused([&] { plan.isend(memory.all(), ~std::size_t{0} - 3, 1, unr::Layout::of(8), 0, 1); });
    const std::vector<int> one(1);
    const std::vector<int> negative(2, -1);
    const auto all = memory.all();
    const unr::Layout byte = unr::Layout::of(1);
    refused([&] { plan.alltoallv(all, one, one, byte, all, one, one, byte, {}, signal); });
    refused([&] { plan.alltoallv(all, negative, negative, byte, all, negative, negative, byte, {}, signal); });
    EXPECT_EQ(signal.events(), 0);
    const auto misused = [](auto call) { return expect_code(Code::misuse, call); };
    misused([&] { signal.wait(); });
    misused([&] { plan.start(); });
    const auto error = misused([&] { plan.commit(); });
    EXPECT_NE(std::string(error->what()).find("signal 'signal': it is triggered by 3 events, and 0 messages"),
              std::string::npos)
        << error->what();
    other.commit();
    misused([&] { other.commit(); });
    misused([&] { other.isend(memory.all(), 0, 1); });
    other.close();
    other.close();
    misused([&] { other.start(); });
    unr::Plan empty;
    unr::Signal nothing;
    misused([&] { empty.start(); });
    misused([&] { nothing.wait(); });
    EXPECT_EQ(nothing.epoch(), 0U);
    board().meet(context);
  });
}

/// The last round that a peer has sent is the last that can be waited for.
TEST_P(UnrMistakes, a_wait_for_a_peer_that_has_closed) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    OneWayPlan side(context, GetParam());
    if (side.rank == 0) {
      side.plan.start(side.stream());
      context.synchronize(side.stream());
      side.plan.close();
    } else {
      side.signal.wait(side.stream());
      side.signal.reset(side.stream());
      const auto error = expect_code(Code::closed, [&] {
        while (!side.signal.wait_for(20s)) {
        }
      });
      EXPECT_NE(std::string(error->what()).find("signal 'arrived'"), std::string::npos) << error->what();
      EXPECT_EQ(error->epoch(), 2U);
    }
    board().meet(context);
  });
}

/// The limit of the context is that of the second put, which waits for the reset.
TEST_P(UnrMistakes, a_wait_for_sends_whose_put_has_run_out_of_time) {
  if (!GetParam().host || GetParam().cuda) return;
  Peers peers = with_untold(GetParam().peers());
  peers.timeout = 50ms;
  run_peers(peers, [](Context& context) {
    OneWayPlan side(context, GetParam());
    if (side.rank == 0) {
      side.plan.start(side.stream());
      EXPECT_TRUE(side.signal.wait_for(20s));
      side.signal.reset(side.stream());
      side.plan.start(side.stream());
      const auto error = expect_code(Code::timeout, [&] {
        while (!side.signal.wait_for(20s)) {
        }
      });
      EXPECT_NE(std::string(error->what()).find("signal 'sent'"), std::string::npos) << error->what();
    }
    board().meet(context);
  });
}

/// The signal keeps what the plan had.
TEST_P(UnrMistakes, a_signal_of_a_plan_that_an_exception_has_destroyed) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    unr::Signal signal;
    const auto fails = [&] {
      OneWayPlan side(context, GetParam());
      signal = side.signal;
      board().meet(context);
      if (side.rank == 0) throw std::runtime_error("on purpose");
      expect_code(Code::peer_lost, [&] {
        while (!side.signal.wait_for(20s)) {
        }
      });
    };
    if (context.rank() == 0) {
      EXPECT_THROW(fails(), std::runtime_error);
      expect_code(Code::misuse, [&] { (void)signal.wait_for(0ns); });
    } else {
      fails();
    }
    board().meet(context);
  });
}

/// None is a wait for messages that the receiver has, and whose memory it never frees again.
TEST_P(UnrMistakes, none_is_a_wait_for_sends_to_a_peer_that_has_closed) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    OneWayPlan side(context, GetParam());
    if (side.rank == 0) {
      fill(side.memory.bytes(), {0, kTag, 1});
      side.plan.start(side.stream());
      board().meet(context);  // the peer has closed
      side.signal.wait(side.stream());
      context.synchronize(side.stream());
      EXPECT_TRUE(side.signal.wait_for(20s));
      side.signal.reset(side.stream());
    } else {
      side.signal.wait(side.stream());
      context.synchronize(side.stream());
      EXPECT_EQ(difference(side.memory.bytes(), {0, kTag, 1}), "");
      side.plan.close();
      board().meet(context);
    }
    board().meet(context);
  });
}

/// In one put that is packed, and in two.
constexpr std::array<std::size_t, 2> kPackUpTo{4096, 1024};

/// Before the wait for what has arrived, and behind it.
TEST_P(UnrMistakes, a_reset_on_a_stream_that_was_moved_from) {
  run_peers(GetParam().peers(), [](Context& context) {
    HostStream gone;
    const HostStream taken = std::move(gone);
    const Stream none = Stream::host(gone);  // NOLINT(bugprone-use-after-move): what is moved from is empty
    for (const std::size_t pack_up_to : kPackUpTo) {
      OneWayPlan side(context, GetParam(), {.pack_up_to = pack_up_to});
      for (std::uint64_t round = 1; round <= 2; ++round) {
        if (side.rank == 0) {
          fill(side.memory.bytes(), {0, kTag, round});
          side.plan.start(side.stream());
          EXPECT_TRUE(side.signal.wait_for(20s));
        }
        board().meet(context);
        const auto refused = [&] {
          if (side.rank == 1) expect_code(Code::misuse, [&] { side.signal.reset(none); });
        };
        refused();
        side.signal.wait(side.stream());
        context.synchronize(side.stream());
        EXPECT_EQ(difference(side.memory.bytes(), {0, kTag, round}), "");
        refused();
        EXPECT_EQ(side.signal.epoch(), round);
        side.signal.reset(side.stream());
      }
      context.synchronize(side.stream());
      board().meet(context);
    }
  });
}

/// The error of closing names the channel that is not closed, and what it waits for.
TEST_P(UnrMistakes, a_close_while_a_stream_stands) {
  if (!GetParam().host || GetParam().cuda) return;
  run_peers(GetParam().peers(), [](Context& context) {
    OneWayPlan side(context, GetParam());
    if (side.rank == 0) {
      side.plan.start(side.stream());
    } else {
      side.order.run([&words = board()] { words.await(kGo, 1); });
      side.signal.wait(side.stream());
      const std::optional<Error> error = expect_code(Code::timeout, [&] { side.plan.close(30ms); });
      board().set(kGo, 1);
      ASSERT_TRUE(error);
      const std::string text = error->what();
      EXPECT_EQ(error->peer(), 0) << text;
      EXPECT_NE(text.find("'one way'"), std::string::npos) << text;
      EXPECT_NE(text.find("not closed after 30 ms: its memory is still in use; "), std::string::npos) << text;
    }
    side.plan.close();
  });
}

/// A wait that is only enqueued says nothing of what has arrived.
TEST_P(UnrMistakes, a_second_wait_elsewhere_while_the_first_is_enqueued) {
  if (!GetParam().host || GetParam().cuda) return;
  run_peers(GetParam().peers(), [](Context& context) {
    std::uint64_t step = 0;
    for (const std::size_t pack_up_to : kPackUpTo) {
      OneWayPlan side(context, GetParam(), {.pack_up_to = pack_up_to});
      ++step;
      if (side.rank == 1) {
        HostStream other;
        side.order.run([&words = board(), step] { words.await(kGo, step); });  // holds the stream
        side.signal.wait(side.stream());
        EXPECT_FALSE(side.signal.wait_for(0ns));
        expect_code(Code::misuse, [&] { side.signal.wait(Stream::host(other)); });
        expect_code(Code::misuse, [&] { side.signal.wait(); });
        board().meet(context);
        board().meet(context);  // all has arrived
        EXPECT_FALSE(side.signal.wait_for(0ns));
        board().set(kGo, step);
        EXPECT_TRUE(side.signal.wait_for(20s));
        EXPECT_EQ(difference(side.memory.bytes(), {0, kTag, 1}), "");
        side.signal.wait(Stream::host(other));  // the host knows by now
      } else {
        fill(side.memory.bytes(), {0, kTag, 1});
        board().meet(context);
        side.plan.start(side.stream());
        EXPECT_TRUE(side.signal.wait_for(20s));
        board().meet(context);
      }
      context.synchronize(side.stream());
      board().meet(context);
    }
  });
}

/// The bytes that are sent are those from before the wait, on whichever stream it is.
TEST_P(UnrMistakes, a_wait_in_program_order_for_sends_of_a_stream) {
  if (!GetParam().host || GetParam().cuda) return;
  run_peers(GetParam().peers(), [](Context& context) {
    std::uint64_t step = 0;
    for (const std::size_t pack_up_to : kPackUpTo) {
      HostStream other;  // outlives the plan that is used on it
      OneWayPlan side(context, GetParam(), {.pack_up_to = pack_up_to});
      ++step;
      if (side.rank == 0) {
        fill(side.memory.bytes(), {0, kTag, 1});
        side.order.run([&words = board(), step] { words.await(kGo, step); });  // holds the stream
        side.plan.start(side.stream());
        expect_code(Code::misuse, [&] { side.signal.wait(); });
        std::atomic<bool> passed{false};
        side.signal.wait(Stream::host(other));
        other.run([&] {
          poison(side.memory.bytes());
          passed = true;
        });
        expect_for(20ms, [&] { return !passed; });
        board().set(kGo, step);
        other.synchronize();
      } else {
        side.signal.wait(side.stream());
        context.synchronize(side.stream());
        EXPECT_EQ(difference(side.memory.bytes(), {0, kTag, 1}), "");
      }
      context.synchronize(side.stream());
      board().meet(context);
    }
  });
}

std::vector<Case> of_mistakes() {
  std::vector<Case> all = unr_cases({2});
  std::erase_if(all, [](const Case& one) { return one.user; });
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, UnrMistakes, testing::ValuesIn(of_mistakes()), CaseName());

}  // namespace
