// SPDX-License-Identifier: Apache-2.0
// Plans made from the arguments of MPI's calls: the data of every round, and that no sender overwrites data in use.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/cases.hpp"
#include "tests/conformance/random_seed.hpp"
#include "tests/conformance/unr_cases.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class UnrPlans : public testing::TestWithParam<Case> {
 public:
  static Peers peers() { return GetParam().peers(); }
  static std::uint64_t rounds(std::uint64_t usual) { return GetParam().ground.network ? 5 : usual; }
};

/// A rank, its stream, and memory for messages.
struct UnrSide {
  UnrSide(Context& in, std::size_t source_bytes, std::size_t target_bytes)
      : context(in), order(UnrPlans::GetParam()), source(in, UnrPlans::GetParam(), source_bytes),
        target(in, UnrPlans::GetParam(), target_bytes) {}
  Stream stream() { return order.stream(); }
  Slice from(std::size_t offset, std::size_t bytes) const { return source.all().slice(offset, bytes); }
  Slice to(std::size_t offset, std::size_t bytes) const { return target.all().slice(offset, bytes); }
  void end() {
    context.synchronize(order.stream());
    board().meet(context);
  }

  Context& context;
  test::Order order;
  Buffer source;
  Buffer target;
};

/// Messages of each size to both neighbours, as a halo has them.
TEST_P(UnrPlans, bring_every_byte_of_every_round) {
  run_peers(peers(), [](Context& context) {
    const std::vector<std::size_t> sizes{8, 0, 100, 1024, 5000, 40'000};
    const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    UnrSide side(context, 2 * all, 2 * all);
    const Rank left = (context.rank() + context.size() - 1) % context.size();
    const Rank right = (context.rank() + 1) % context.size();
    unr::Plan plan(context, "halo");
    unr::Signal sent = plan.signal("sent", 12);
    unr::Signal arrived = plan.signal("arrived", 12);
    std::size_t at = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto tag = static_cast<Tag>(i);
      plan.sendrecv(side.from(at, sizes[i]), left, tag, side.to(at, sizes[i]), right, tag, sent, arrived);
      plan.sendrecv(side.from(all + at, sizes[i]), right, 100 + tag, side.to(all + at, sizes[i]), left, 100 + tag, sent,
                    arrived);
      at += sizes[i];
    }
    plan.commit(side.stream());
    // Four sizes share a put.
    EXPECT_EQ(plan.puts(), left == right ? 5U : 6U) << plan.describe();
    for (std::uint64_t round = 1; round <= rounds(50); ++round) {
      side.order.run([&, round] { fill(side.source.bytes(), {context.rank(), kTag, round}); });
      plan.start(side.stream());
      arrived.wait(side.stream());
      side.order.run([&, round] {
        EXPECT_EQ(difference(side.target.bytes().first(all), {right, kTag, round}), "");
        EXPECT_EQ(difference(side.target.bytes().subspan(all), {left, kTag, round}, all), "");
        poison(side.target.bytes());
      });
      arrived.reset(side.stream());
      sent.wait(side.stream());
      sent.reset(side.stream());
    }
    side.end();
    EXPECT_EQ(arrived.epoch(), rounds(50) + 1);
    plan.close();
  });
}

/// A matrix is transposed: each rank has rows, and then columns, of which MPI's datatypes are not contiguous.
TEST_P(UnrPlans, exchange_all_with_all_in_pieces) {
  run_peers(peers(), [](Context& context) {
    const int ranks = context.size();
    const auto wide = static_cast<std::size_t>(ranks) * 3;  // columns of the matrix, of 8 bytes
    constexpr std::size_t kLines = 3;
    UnrSide side(context, kLines * wide * 8, wide * kLines * 8);
    unr::Plan plan(context, "transpose");
    unr::Signal sent = plan.signal("sent");
    unr::Signal arrived = plan.signal("arrived", ranks);
    // Block `r`: columns 3 r to 3 r + 2 of our rows. It arrives as 3 rows of a square.
    const unr::Layout block = unr::Layout::strided(kLines, 24, wide * 8);
    const unr::Layout sends{block.pieces, 24};
    std::vector<int> ones(static_cast<std::size_t>(ranks), 1);
    std::vector<int> places(static_cast<std::size_t>(ranks));
    std::iota(places.begin(), places.end(), 0);
    plan.alltoallv(side.source.all(), ones, places, sends, side.target.all(), ones, places,
                   unr::Layout::of(kLines * 24), sent, arrived);
    plan.commit(side.stream());
    const auto number = [wide](std::size_t row, std::size_t column, std::uint64_t round) {
      return (round * 1000 + row) * wide + column;
    };
    const std::size_t first = static_cast<std::size_t>(context.rank()) * kLines;
    for (std::uint64_t round = 1; round <= rounds(20); ++round) {
      side.order.run([&, round] {
        const auto words = side.source.all();
        for (std::size_t i = 0; i < kLines * wide; ++i)
          words.as<std::uint64_t>()[i] = number(first + i / wide, i % wide, round);
      });
      plan.start(side.stream());
      arrived.wait(side.stream());
      side.order.run([&, round] {
        const auto words = side.target.all();
        for (std::size_t i = 0; i < wide * kLines; ++i)
          ASSERT_EQ(words.as<std::uint64_t>()[i], number(i / 3, first + i % 3, round)) << i;
      });
      arrived.reset(side.stream());
      sent.wait(side.stream());
      sent.reset(side.stream());
    }
    side.end();
    plan.close();
  });
}

TEST_P(UnrPlans, send_nothing_to_no_rank_and_no_bytes_of_an_exchange) {
  run_peers(peers(), [](Context& context) {
    UnrSide side(context, 64, 64);
    unr::Plan plan(context, "none");
    unr::Signal arrived = plan.signal("arrived", 1);
    const auto size = static_cast<std::size_t>(context.size());
    const std::vector<int> places(size);
    std::vector<int> counts(size);
    counts[static_cast<std::size_t>(context.rank())] = 1;  // only to itself
    plan.isend(side.from(0, 8), -1, 1);
    plan.irecv(side.to(0, 8), -1, 1, arrived);
    plan.alltoallv(side.source.all(), counts, places, unr::Layout::of(64), side.target.all(), counts, places,
                   unr::Layout::of(64), {}, arrived);
    plan.commit(side.stream());
    EXPECT_EQ(plan.puts(), 1U);
    fill(side.source.bytes(), {context.rank(), kTag, 1});
    plan.start(side.stream());
    arrived.wait(side.stream());
    side.order.run([&] { EXPECT_EQ(difference(side.target.bytes(), {context.rank(), kTag, 1}), ""); });
    side.end();
  });
}

/// A counter of two events would be triggered by two puts of the fast sender.
TEST_P(UnrPlans, let_no_fast_sender_stand_in_for_a_slow_one) {
  if (GetParam().ranks != 3) return;
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kBytes = 3000;
    UnrSide side(context, kBytes, 2 * kBytes);
    unr::Plan plan(context, "aggregate");
    unr::Signal arrived = plan.signal("arrived", context.rank() == 0 ? 2 : 0);
    unr::Signal sent = plan.signal("sent");
    const bool sends = context.rank() != 0;
    if (sends) {
      plan.isend(side.from(0, kBytes), 0, 7, sent);
    } else {
      for (const Rank rank : {1, 2})
        plan.irecv(side.to(static_cast<std::size_t>(rank - 1) * kBytes, kBytes), rank, 7, arrived);
    }
    plan.commit(side.stream());
    const auto put = [&](std::uint64_t round) {
      if (round > 1) {
        EXPECT_TRUE(sent.wait_for(20s));
        sent.reset(side.stream());
      }
      fill(side.source.bytes(), {context.rank(), kTag, round});
      plan.start(side.stream());
    };
    if (context.rank() == 2) {  // the fast one
      put(1);
      board().set(kGo, 1);
      sent.reset(side.stream());
      plan.start(side.stream());  // waits for the reset of rank 0
    } else if (context.rank() == 1) {
      board().await(kGo, 2);
      put(1);
      put(2);
    } else {
      board().await(kGo, 1);
      EXPECT_FALSE(arrived.wait_for(20ms));
      board().set(kGo, 2);
      if (GetParam().cuda) {
        arrived.wait(side.stream());
        context.synchronize(side.stream());
      } else {
        EXPECT_TRUE(arrived.wait_for(20s));
      }
      EXPECT_EQ(difference(side.target.bytes().first(kBytes), {1, kTag, 1}), "");
      EXPECT_EQ(difference(side.target.bytes().subspan(kBytes), {2, kTag, 1}), "");
      expect_for(20ms, [&] { return difference(side.target.bytes().subspan(kBytes), {2, kTag, 1}).empty(); });
      arrived.reset(side.stream());
      arrived.wait(side.stream());
      context.synchronize(side.stream());
      EXPECT_EQ(difference(side.target.bytes().first(kBytes), {1, kTag, 2}), "");
    }
    side.end();
  });
}

/// Whichever comes first, of the one that has closed and the other.
TEST_P(UnrPlans, send_to_the_others_when_a_peer_has_closed) {
  if (GetParam().ranks != 3) return;
  run_peers(with_untold(peers()), [](Context& context) {
    UnrSide side(context, 3000, 3000);
    for (const Rank leaver : {1, 2}) {
      unr::Plan plan(context, "leaver " + std::to_string(leaver));
      unr::Signal arrived = plan.signal("arrived");
      unr::Signal sent = plan.signal("sent");
      if (context.rank() == 0) {
        for (const Rank to : {1, 2}) plan.isend(side.source.all(), to, 7, sent);
      } else {
        plan.irecv(side.target.all(), 0, 7, arrived);
      }
      plan.commit(side.stream());
      const auto receive = [&](std::uint64_t round) {
        arrived.wait(side.stream());
        context.synchronize(side.stream());
        EXPECT_EQ(difference(side.target.bytes(), {0, kTag, round}), "");
      };
      if (context.rank() == 0) {
        fill(side.source.bytes(), {0, kTag, 1});
        plan.start(side.stream());
        board().meet(context);  // both have the message, and one has closed
        sent.wait(side.stream());
        context.synchronize(side.stream());
        sent.reset(side.stream());
        fill(side.source.bytes(), {0, kTag, 2});
        expect_code(Code::closed, [&] { plan.start(side.stream()); });
        EXPECT_EQ(plan.rounds(), 2U);
      } else {
        receive(1);
        if (context.rank() == leaver) plan.close();
        board().meet(context);
        if (context.rank() != leaver) {
          arrived.reset(side.stream());
          receive(2);
        }
      }
      context.synchronize(side.stream());
      board().meet(context);
    }
  });
}

/// One limit holds for all ranks that have not committed, however late the others were.
TEST_P(UnrPlans, that_a_rank_does_not_commit_name_the_limit) {
  if (GetParam().ranks != 3) return;
  run_peers(with_untold(peers()), [](Context& context) {
    UnrSide side(context, 64, 64);
    unr::Plan plan(context, "late");
    unr::Signal arrived = plan.signal("arrived");
    if (context.rank() == 0) {
      for (const Rank to : {1, 2}) plan.isend(side.source.all(), to, 7);
      const auto error = expect_code(Code::timeout, [&] { plan.commit(side.stream(), 100ms); });
      EXPECT_NE(std::string(error->what()).find("not connected after 100 ms"), std::string::npos) << error->what();
    } else {
      plan.irecv(side.target.all(), 0, 7, arrived);
      std::this_thread::sleep_for(20ms);
      if (context.rank() == 1) {
        try {
          plan.commit(side.stream());
        } catch (const Error&) {  // NOLINT(bugprone-empty-catch): rank 0 may have given up
        }
      }
    }
    board().meet(context);
  });
}

/// Only what the receiver waits for together travels together.
TEST_P(UnrPlans, pack_by_peer_and_signal) {
  if (GetParam().ranks != 2) return;
  run_peers(peers(), [](Context& context) {
    UnrSide side(context, 10'000, 10'000);
    const Rank other = 1 - context.rank();
    const auto puts_of = [&](std::size_t pack_up_to, std::size_t bytes, bool one_signal) {
      unr::Plan plan(context, "packs", {.pack_up_to = pack_up_to});
      unr::Signal first = plan.signal("first");
      unr::Signal second = plan.signal("second");
      for (std::size_t i = 0; i < 4; ++i) {
        const Slice to = side.to(i * bytes, bytes);
        plan.sendrecv(side.from(i * bytes, bytes), other, 1, to, other, 1, {},
                      one_signal || i % 2 == 0 ? first : second);
      }
      plan.commit(side.stream());
      const std::size_t puts = plan.puts();
      fill(side.source.bytes(), {context.rank(), kTag, puts});
      plan.start(side.stream());
      first.wait(side.stream());
      if (!one_signal) second.wait(side.stream());
      context.synchronize(side.stream());
      EXPECT_EQ(difference(side.target.bytes().first(4 * bytes), {other, kTag, puts}), "") << plan.describe();
      board().meet(context);
      plan.close();
      return puts;
    };
    EXPECT_EQ(puts_of(1024, 1024, true), 1U);
    EXPECT_EQ(puts_of(1024, 1024, false), 2U);
    EXPECT_EQ(puts_of(1024, 1025, true), 4U);
    EXPECT_EQ(puts_of(0, 8, true), 4U);
    EXPECT_EQ(puts_of(10'000, 2000, true), 1U);
  });
}

TEST_P(UnrPlans, carry_and_pack_memory_of_gpus) {
  if (!GetParam().cuda) return;
  run_peers(peers(), [](Context& context) {
    const std::vector<std::size_t> sizes{100, 8, 5000, 1000};
    const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    UnrSide side(context, all, all);
    const Memory source = context.allocate(all, Space::device);
    const Memory target = context.allocate(all, Space::device);
    const Rank left = (context.rank() + context.size() - 1) % context.size();
    const Rank right = (context.rank() + 1) % context.size();
    const auto record = [&](unr::Plan& plan, const unr::Signal& arrived) {
      std::size_t at = 0;
      for (const std::size_t bytes : sizes) {
        plan.sendrecv(source.slice(at, bytes), right, 7, target.slice(at, bytes), left, 7, {}, arrived);
        at += bytes;
      }
    };
    unr::Plan plan(context, "gpu");
    unr::Signal arrived = plan.signal("arrived");
    record(plan, arrived);
    plan.commit(side.stream());
    EXPECT_EQ(plan.puts(), 2U);
    for (std::uint64_t round = 1; round <= 5; ++round) {
      side.order.run([&, round] { fill(side.source.bytes(), {context.rank(), kTag, round}); });
      side.order.gpu()->copy(source.data(), side.source.bytes().data(), all);
      plan.start(side.stream());
      arrived.wait(side.stream());
      side.order.gpu()->copy(side.target.bytes().data(), target.data(), all);
      side.order.run([&, round] { EXPECT_EQ(difference(side.target.bytes(), {left, kTag, round}), ""); });
      arrived.reset(side.stream());
      context.synchronize(side.stream());
      board().meet(context);  // what was sent without a signal has arrived
    }
    unr::Plan on_host(context, "on the host");
    unr::Signal never = on_host.signal("never");
    record(on_host, never);
    expect_code(Code::unsupported, [&] { on_host.commit(); });
    board().meet(context);
  });
}

/// A signal is waited for on the stream, and never reset.
TEST_P(UnrPlans, that_close_await_copies_of_a_stream) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kWord = sizeof(std::uint64_t);
    constexpr std::size_t kWords = kSanitized ? 1 << 17 : 1 << 20;
    constexpr std::size_t kEach = 2;  // of two words at the receiver the first is of the message
    if (context.rank() > 1) return board().meet(context);
    const bool sends = context.rank() == 0;
    UnrSide side(context, sends ? kWords * kWord : kWord, sends ? kWord : kWords * kEach * kWord);
    unr::Plan plan(context, "pieces");
    unr::Signal arrived = plan.signal("arrived");
    const unr::Layout pieces{{{0, kWord}}, kEach * kWord};
    if (sends) plan.isend(side.source.all(), 1, 7);
    if (!sends) plan.irecv(side.target.all(), 0, kWords, pieces, 0, 7, arrived);
    plan.commit(side.stream());
    auto* const words = reinterpret_cast<std::uint64_t*>((sends ? side.source : side.target).bytes().data());
    for (std::size_t i = 0; sends && i < kWords; ++i) words[i] = i + 1;
    if (sends) plan.start(side.stream());
    if (!sends) arrived.wait(side.stream());
    plan.close();
    std::size_t wrong = 0;
    for (std::size_t i = 0; !sends && i < kWords; ++i) wrong += words[kEach * i] == i + 1 ? 0 : 1;
    EXPECT_EQ(wrong, 0U);
    context.synchronize(side.stream());
    board().meet(context);
  });
}

/// The waits are enqueued before the puts that they wait for, on another stream.
TEST_P(UnrPlans, that_pack_hold_up_no_host) {
  if (!GetParam().cuda) return;
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kBytes = 100;
    UnrSide side(context, 2 * kBytes, 2 * kBytes);
    GpuStream puts;
    const Rank left = (context.rank() + context.size() - 1) % context.size();
    const Rank right = (context.rank() + 1) % context.size();
    unr::Plan plan(context, "packs");
    unr::Signal arrived = plan.signal("arrived");
    for (const std::size_t at : {std::size_t{0}, kBytes})
      plan.sendrecv(side.from(at, kBytes), right, 7, side.to(at, kBytes), left, 7, {}, arrived);
    plan.commit(side.stream());
    EXPECT_EQ(plan.puts(), 1U);
    fill(side.source.bytes(), {context.rank(), kTag, 1});
    arrived.wait(side.stream());
    board().meet(context);  // no rank has put anything
    plan.start(puts.stream());
    context.synchronize(puts.stream());
    context.synchronize(side.stream());
    EXPECT_EQ(difference(side.target.bytes(), {left, kTag, 1}), "");
    arrived.reset(side.stream());
    context.synchronize(side.stream());
    board().meet(context);
  });
}

/// The bytes of each plan are those of its list of messages.
TEST_P(UnrPlans, do_what_a_list_of_messages_says) {
  const std::uint64_t seed = random_seed();
  run_peers(peers(), [=](Context& context) {
    for (std::uint64_t i = 0; i < random_rounds() * (GetParam().ground.network ? 1 : 4); ++i) {
      const MessageList list(seed + i, context.size());
      UnrSide side(context, list.source_bytes(), list.target_bytes());
      list.run(context, side.order, side.source.all(), side.target.all(), GetParam().cuda, rounds(12));
      side.end();
    }
  });
}

// ---- ranks that die

class LostUnrPeers : public WithKills {};

TEST_P(LostUnrPeers, end_every_wait) {
  Case of_three = GetParam();
  of_three.ranks = 3;
  Peers peers = of_three.peers();
  peers.keep_going = peers.untold = true;
  expect_only_rank_1_killed(end_of_peers(peers, [of_three](Context& context) {
    test::Order order(of_three);
    const Buffer source(context, of_three, 5000);
    const Buffer target(context, of_three, 10'000);
    unr::Plan plan(context, "ring");
    unr::Signal arrived = plan.signal("arrived");
    for (Rank rank = 0, i = 0; rank < 3; ++rank) {
      if (rank == context.rank()) continue;
      plan.isend(source.all(), rank, 1);
      plan.irecv(target.all().slice(static_cast<std::size_t>(i++) * 5000, 5000), rank, 1, arrived);
    }
    plan.commit(order.stream());
    plan.start(order.stream());
    arrived.wait(order.stream());
    context.synchronize(order.stream());
    board().word(kReady).fetch_add(1);
    if (context.rank() == 1) die_when_ready(3);
    board().await(kReady, 3);
    const auto may_notice = [](auto call) {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::peer_lost) << error.what();
      }
    };
    // The messages between those that live go on.
    may_notice([&] { arrived.reset(order.stream()); });
    may_notice([&] { plan.start(order.stream()); });
    expect_loss_of_rank_1(context, [&] {
      arrived.wait(order.stream());
      context.synchronize(order.stream());
    });
    expect_loss_of_rank_1(context, [&] {
      arrived.wait(order.stream());
      context.synchronize(order.stream());
      static_cast<void>(arrived.wait_for(20s));
      arrived.reset(order.stream());
    });
    plan.close();
    try {
      context.check();
    } catch (const Error& reason) {
      EXPECT_EQ(reason.code(), Code::peer_lost) << reason.what();
    }
    // The others leave together: one that leaves first would be lost to the other.
    board().word(kReady).fetch_add(1);
    board().await(kReady, 5);
  }));
}

/// The first round is reset without a wait on a stream, and with one message that was waited for before its rank died.
TEST_P(LostUnrPeers, keep_no_memory_that_another_message_came_into) {
  constexpr std::size_t kStep = 5;
  Case of_three = GetParam();
  of_three.ranks = 3;
  Peers peers = of_three.peers();
  peers.keep_going = peers.untold = true;
  expect_only_rank_1_killed(end_of_peers(peers, [of_three](Context& context) {
    test::Order order(of_three);
    const Buffer memory(context, of_three, 10'000);
    const Slice first = memory.all().slice(0, 5000);
    unr::Plan plan(context, "to rank 0");
    unr::Signal signal = plan.signal("signal");
    const Rank rank = context.rank();
    if (rank == 0) {
      plan.irecv(first, 1, 1, signal);
      plan.irecv(memory.all().slice(5000, 5000), 2, 1, signal);
    } else {
      plan.isend(first, 0, 1, signal);
    }
    plan.commit(order.stream());
    if (rank == 0) {
      Receiver lost = context.receiver(1, 9, first);
      board().await(kStep, 1);
      EXPECT_FALSE(signal.wait_for(10ms));
      board().word(kReady).fetch_add(1);
      expect_loss_of_rank_1(context, [&] { (void)lost.wait({}); });
      (void)lost.describe();  // all channels from rank 1 are lost by now
      board().set(kStep, 2);
      board().await(kStep, 3);
      HostStream gone;
      const HostStream taken = std::move(gone);
      const Stream none = Stream::host(gone);  // NOLINT(bugprone-use-after-move): what is moved from is empty
      expect_code(Code::misuse, [&] { signal.reset(none); });
      EXPECT_EQ(signal.epoch(), 1U);
      expect_loss_of_rank_1(context, [&] { signal.reset(order.stream()); });
      EXPECT_EQ(signal.epoch(), 2U);
      board().await(kStep, 4);
    } else if (rank == 1) {
      const Sender lost = context.sender(0, 9, first);
      plan.start(order.stream());
      EXPECT_TRUE(signal.wait_for(20s));
      board().set(kStep, 1);
      die_when_ready();
    } else {
      board().await(kStep, 2);
      for (std::uint64_t round = 1; round <= 2; ++round) {
        plan.start(order.stream());
        EXPECT_TRUE(signal.wait_for(20s)) << "round " << round;
        signal.reset(order.stream());
        board().set(kStep, 2 + round);
      }
    }
    plan.close();
    try {
      context.check();
    } catch (const Error& reason) {
      EXPECT_EQ(reason.code(), Code::peer_lost) << reason.what();
    }
    board().word(kReady).fetch_add(1);
    board().await(kReady, 3);
  }));
}

TEST_P(LostUnrPeers, end_rounds_at_any_instant) {
  const std::uint64_t seed = random_seed();
  Peers peers = GetParam().peers();
  peers.keep_going = peers.untold = true;
  expect_only_rank_1_killed(end_of_peers(peers, [=](Context& context) {
    test::Order order(GetParam());
    const Buffer source(context, GetParam(), 5000);
    const Buffer target(context, GetParam(), 5000);
    const Rank other = 1 - context.rank();
    unr::Plan plan(context, "pair");
    unr::Signal sent = plan.signal("sent");
    unr::Signal arrived = plan.signal("arrived");
    for (const auto& [at, bytes] : {std::pair(0U, 4000U), std::pair(4000U, 500U), std::pair(4500U, 500U)})
      plan.sendrecv(source.all().slice(at, bytes), other, 1, target.all().slice(at, bytes), other, 1, sent, arrived);
    plan.commit(order.stream());
    board().word(kReady).fetch_add(1);
    const auto rounds = [&] {
      for (;;) {
        plan.start(order.stream());
        arrived.wait(order.stream());
        arrived.reset(order.stream());
        sent.wait(order.stream());
        sent.reset(order.stream());
        context.synchronize(order.stream());
      }
    };
    if (context.rank() == 1) {
      board().await(kReady, 2);
      std::mt19937_64 random(seed);
      std::thread([after = std::chrono::microseconds(random() % 20'000)] {
        std::this_thread::sleep_for(after);
        die();
      }).detach();
      rounds();
    }
    expect_loss_of_rank_1(context, rounds);
    plan.close();
  }));
}

INSTANTIATE_IN_ITS_RANKS(Quick, UnrPlans, testing::ValuesIn(unr_cases({2, 3})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostUnrPeers, testing::ValuesIn(unr_cases_of_processes()), CaseName());

}  // namespace
