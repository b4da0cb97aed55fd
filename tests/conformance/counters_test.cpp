// SPDX-License-Identifier: Apache-2.0
// Counters of windows: accesses that tell the owner of themselves.
#include <signal.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/conformance/windows.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::uint32_t kCounters = 4;
constexpr std::uint32_t kLast = kCounters - 1;

class Counters : public testing::TestWithParam<Case> {
 protected:
  struct Side : WindowSide {
    Side(Context& in, std::size_t window_bytes, std::size_t local_bytes)
        : WindowSide(in, GetParam(), window_bytes, local_bytes, kCounters) {}

    /// Returns when the accesses of every rank are drained.
    void meet_drained() {
      target.drain();
      board().meet(context);
    }
    /// The owner's stream waits, and then calls `work()`.
    template <class Work>
    void after(std::uint32_t counter, std::uint64_t count, Work work) {
      window.wait(stream(), counter, count);
      order.run(std::move(work));
    }
  };
};

/// Sizes around those at which a put travels in another way.
const std::vector<std::size_t>& sizes() {
  static const std::vector<std::size_t> all{0, 1, 8, 64, 900, 4095, 4096, 4097, 40000};
  return all;
}

TEST_P(Counters, show_the_bytes_of_all_that_they_count) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kMost = 40000;
    const auto ranks = static_cast<std::size_t>(context.size());
    const std::uint64_t rounds = GetParam().times(40);
    Side side(context, ranks * kMost, kMost);
    const std::size_t own = static_cast<std::size_t>(context.rank()) * kMost;
    const auto size_of = [](std::uint64_t round, std::size_t rank) { return sizes()[(round + rank) % sizes().size()]; };
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      const std::size_t bytes = size_of(round, static_cast<std::size_t>(context.rank()));
      fill(side.local.bytes().first(bytes), {context.rank(), kTag, round});
      side.target.put_notify(side.stream(), side.piece(0, bytes), own, 1);
      if (context.rank() == 0) {
        side.after(1, round * ranks, [&, round] {
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            const auto there = side.memory.bytes().subspan(rank * kMost, size_of(round, rank));
            EXPECT_EQ(difference(there, {static_cast<Rank>(rank), kTag, round}), "") << rank;
          }
        });
      }
      side.meet();
    }
    if (context.rank() == 0) {
      EXPECT_EQ(side.window.count(1), rounds * ranks);
      EXPECT_EQ(side.window.count(0), 0U);
      EXPECT_EQ(side.window.count(kLast), 0U);
    }
    board().meet(context);
  });
}

TEST_P(Counters, rise_behind_long_payloads) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kBytes = 4'000'000;  // takes longer than the owner needs to see a count
    Side side(context, kBytes, kBytes);
    for (std::uint64_t round = 1; round <= 5; ++round) {
      if (context.rank() == 1) {
        set_word(side.local.bytes(), kBytes / kWord - 1, round);
        side.target.put_notify(side.stream(), side.local.all(), 0, 0);
      }
      if (context.rank() == 0) {
        side.after(0, round, [&, round] { EXPECT_EQ(word_at(side.memory.bytes(), kBytes / kWord - 1), round); });
      }
      side.meet();
    }
  });
}

TEST_P(Counters, order_two_ranks_without_another_word) {
  Case pair = GetParam();
  pair.ranks = 2;
  run_peers(pair.peers(), [](Context& context) {
    const std::uint64_t rounds = GetParam().times(200);
    constexpr std::size_t kBytes = 256;
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), kBytes);
    const Buffer local(context, GetParam(), kBytes);
    const Rank other = 1 - context.rank();
    Window window = context.window(kWindow, memory.all(), 1);
    Target target = context.target(other, kWindow);
    target.wait_connected();
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      const auto take = [&] {
        window.wait(order.stream(), 0, round);
        order.run([&, round] { EXPECT_EQ(difference(memory.bytes(), {other, kTag, round}), ""); });
      };
      const auto give = [&] {
        target.flush(order.stream());  // the bytes of the last round have left
        order.run([&, round, rank = context.rank()] { fill(local.bytes(), {rank, kTag, round}); });
        target.put_notify(order.stream(), local.all(), 0, 0);
      };
      if (context.rank() == 0) give();
      take();
      if (context.rank() == 1) give();
    }
    context.synchronize(order.stream());
    board().meet(context);
  });
}

TEST_P(Counters, tell_that_bytes_were_read) {
  run_peers(GetParam().peers(), [](Context& context) {
    const std::uint64_t rounds = GetParam().times(40);
    const auto readers = static_cast<std::uint64_t>(context.size() - 1);
    constexpr std::size_t kBytes = 9000;
    Side side(context, kBytes, kBytes);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      const std::size_t bytes = round % 2 == 0 ? 4096 : kBytes;  // of those that travel in the two ways
      if (context.rank() == 0) fill(side.memory.bytes().first(bytes), {0, kTag, round});
      board().meet(context);
      if (context.rank() == 0) {
        // Overwrites it at once, once all have read it.
        side.after(0, round * readers, [&] { poison(side.memory.bytes()); });
        context.synchronize(side.stream());
      } else {
        side.target.get_notify(side.stream(), side.piece(0, bytes), 0, 0);
        side.flush();
        EXPECT_EQ(difference(side.local.bytes().first(bytes), {0, kTag, round}), "");
      }
      board().meet(context);
    }
  });
}

TEST_P(Counters, count_what_changes_numbers) {
  run_peers(GetParam().peers(), [](Context& context) {
    const std::uint64_t rounds = GetParam().times(20);
    constexpr std::size_t kNumbers = 700;  // more than one question to an agent has
    const auto ranks = static_cast<std::uint64_t>(context.size());
    Side side(context, kNumbers * kWord, kNumbers * kWord);
    if (context.rank() == 0) std::ranges::fill(side.memory.bytes(), std::byte{0});
    board().meet(context);
    for (std::size_t i = 0; i < kNumbers; ++i) set_word(side.local.bytes(), i, i);
    for (std::uint64_t round = 0; round < rounds; ++round)
      side.target.accumulate_notify(side.stream(), Op::sum, Number::uint64, side.local.all(), 0, 2);
    if (context.rank() == 0) {
      side.after(2, rounds * ranks, [&] {
        for (std::size_t i = 0; i < kNumbers; ++i) EXPECT_EQ(word_at(side.memory.bytes(), i), i * rounds * ranks) << i;
      });
    }
    side.meet();
  });
}

TEST_P(Counters, begin_anew_and_lose_nothing) {
  run_peers(GetParam().peers(), [](Context& context) {
    const std::uint64_t each = GetParam().ground.network ? 100 : 20'000;
    const auto peers = static_cast<std::uint64_t>(context.size() - 1);
    Side side(context, kWord, kWord);
    if (context.rank() == 0) {
      std::uint64_t all = 0;
      while (all < each * peers) {
        EXPECT_TRUE(side.window.wait_for(kLast, 1, 20s));
        const std::uint64_t some = side.window.fetch_and_zero(kLast);
        EXPECT_GE(some, 1U);
        all += some;
      }
      EXPECT_EQ(all, each * peers);
      board().meet(context);
      EXPECT_EQ(side.window.count(kLast), 0U);
      EXPECT_FALSE(side.window.wait_for(kLast, 1, 0ns));
      EXPECT_FALSE(side.window.wait_for(kLast, 1, 1ms));
      side.target.notify(side.stream(), kLast);
      side.window.wait(side.stream(), kLast, 1);
      context.synchronize(side.stream());
      EXPECT_EQ(side.window.count(kLast), 1U);
    } else {
      for (std::uint64_t i = 0; i < each; ++i) side.target.notify(side.stream(), kLast);
      side.flush();
      board().meet(context);
    }
    board().meet(context);
  });
}

TEST_P(Counters, are_up_to_date_once_the_owner_is_told) {
  run_peers(GetParam().peers(), [](Context& context) {
    const std::uint64_t rounds = GetParam().times(20);
    const auto peers = static_cast<std::uint64_t>(context.size() - 1);
    constexpr std::size_t kBytes = 8192;  // of a get that no reply brings
    Side side(context, kBytes, kBytes);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      if (context.rank() != 0) {
        side.target.notify(side.stream(), 1);
        side.target.put_notify(side.stream(), side.piece(0, kWord), 0, kLast);
        for (int get = 0; get < 3; ++get) side.target.get_notify(side.stream(), side.local.all(), 0, 2);
      }
      round % 2 == 0 ? side.meet() : side.meet_drained();
      if (context.rank() == 0) {
        EXPECT_EQ(side.window.count(1), round * peers);
        EXPECT_EQ(side.window.count(2), 3 * round * peers);
        EXPECT_EQ(side.window.fetch_and_zero(kLast), peers);
      }
      board().meet(context);
    }
  });
}

TEST_P(Counters, are_up_to_date_once_their_target_has_closed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const std::uint64_t rounds = GetParam().times(10);
    const auto peers = static_cast<std::uint64_t>(context.size() - 1);
    constexpr std::size_t kBytes = 8192;  // of a get that no reply brings
    Side side(context, kBytes, kBytes);
    side.target.wait_connected();
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      if (context.rank() != 0) {
        Target target = context.target(0, kWindow);
        for (int get = 0; get < 3; ++get) target.get_notify(side.stream(), side.local.all(), 0, 2);
        target.flush_local(side.stream());
        context.synchronize(side.stream());
        target.close();
      }
      board().meet(context);
      if (context.rank() == 0) {
        EXPECT_EQ(side.window.count(2), 3 * round * peers);
      }
      board().meet(context);
    }
  });
}

TEST_P(Counters, are_each_waited_for_alone) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, kWord, kWord);
    if (context.rank() == 0) {
      test::Order other(GetParam());
      const bool later = side.order.host();
      if (later) side.window.wait(side.stream(), 0, 1);
      EXPECT_FALSE(side.window.wait_for(2, 1, 0ns));
      board().set(kGo, 1);
      side.window.wait(other.stream(), 1, 1);  // counter 1 alone has risen
      context.synchronize(other.stream());
      EXPECT_EQ(side.window.count(0), 0U);
      board().set(kGo, 2);
      if (!later) side.window.wait(side.stream(), 0, 1);
      context.synchronize(side.stream());
      EXPECT_EQ(side.window.count(0), 1U);
    } else if (context.rank() == 1) {
      board().await(kGo, 1);
      side.target.notify(side.stream(), 1);
      board().await(kGo, 2);
      side.target.notify(side.stream(), 0);
    }
    side.meet();
  });
}

TEST_P(Counters, say_what_is_wrong) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, 64, 64);
    side.target.wait_connected();
    const auto refused = [](Code code, auto call) { return expect_code(code, call); };
    const auto error = refused(Code::bad_argument, [&] { side.target.notify(side.stream(), kCounters); });
    EXPECT_NE(std::string(error->what()).find("there is no counter 4 among 4"), std::string::npos) << error->what();
    refused(Code::bad_argument, [&] { side.target.put_notify(side.stream(), side.piece(0, 64), 8, 0); });
    if (context.rank() == 0) {
      refused(Code::bad_argument, [&] { side.window.wait(side.stream(), kCounters, 1); });
      refused(Code::bad_argument, [&] { static_cast<void>(side.window.count(kCounters)); });
      refused(Code::bad_argument, [&] { side.window.wait(side.stream(), 0, ~std::uint64_t{0}); });
      refused(Code::bad_argument,
              [&] { static_cast<void>(context.window("many", side.memory.all(), Window::kMostCounters + 1)); });
      side.target.notify(side.stream(), 0);  // nothing of that has changed anything
      side.window.wait(side.stream(), 0, 1);
      context.synchronize(side.stream());
      Window closed = context.window("closed", side.memory.all(), 1);
      static_cast<void>(closed.count(0));
      closed.close();
      refused(Code::misuse, [&] { closed.wait(side.stream(), 0, 0); });
      refused(Code::misuse, [&] { static_cast<void>(closed.wait_for(0, 0, 0ns)); });
    }
    side.meet();
  });
}

TEST_P(Counters, close_when_what_waits_for_them_has_passed) {
  if (!GetParam().host) return;
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, kWord, kWord);
    side.target.wait_connected();
    board().meet(context);
    if (context.rank() == 0) {
      side.window.wait(side.stream(), 0, 1);
      expect_code(Code::timeout, [&] { side.window.close(30ms); });
      board().set(kGo, 1);
      side.window.close(20s);
      context.synchronize(side.stream());
    } else if (context.rank() == 1) {
      board().await(kGo, 1);
      side.target.notify({}, 0);
    }
    board().meet(context);
  });
}

TEST_P(Counters, keep_to_the_limit_of_a_stream) {
  if (!GetParam().host) return;
  Peers peers = with_untold(GetParam().peers());
  run_peers(peers, [](Context& context) {
    if (context.rank() == 0) {
      const Buffer memory(context, GetParam(), kWord);
      Window window = context.window(kWindow, memory.all(), 2);
      HostStream limited({.timeout = 30ms});
      window.wait(Stream::host(limited), 0, 1);
      expect_code(Code::timeout, [&] { context.synchronize(Stream::host(limited)); });
      expect_code(Code::timeout, [&] { static_cast<void>(window.count(0)); });
      EXPECT_EQ(window.count(1), 0U);  // the others are as they were
    }
    board().meet(context);
  });
}

TEST_P(Counters, end_their_waits_with_an_abort) {
  if (!GetParam().host) return;
  Peers peers = with_untold(GetParam().peers());
  run_peers(peers, [](Context& context) {
    Side side(context, kWord, kWord);
    side.target.wait_connected();
    board().meet(context);
    if (context.rank() == 0) {
      side.window.wait(side.stream(), 0, 1);
      expect_code(Code::aborted, [&] {
        context.abort("enough");
        context.synchronize(side.stream());
      });
      expect_code(Code::aborted, [&] { static_cast<void>(side.window.wait_for(1, 1, 20s)); });
    }
    board().meet(context);
  });
}

TEST_P(Counters, fail_with_a_target_that_was_to_raise_them) {
  Peers peers = with_untold(GetParam().peers());
  run_peers(peers, [](Context& context) {
    Side side(context, kWord, kWord);
    side.target.wait_connected();
    if (context.rank() == 0) static_cast<void>(side.window.count(0));
    board().meet(context);
    if (context.rank() == 1) {
      try {
        const Target leaves = std::move(side.target);
        throw std::runtime_error("a mistake");
      } catch (const std::runtime_error&) {
        EXPECT_EQ(side.target.peer(), -1);  // and the rank goes on
      }
    }
    if (context.rank() == 0) {
      expect_code(Code::peer_lost, [&] { static_cast<void>(side.window.wait_for(0, 1, 20s)); });
      expect_code(Code::peer_lost, [&] { static_cast<void>(side.window.wait_for(1, 1, 20s)); });
      EXPECT_EQ(side.target.fetch_add(0, 0), word_at(side.memory.bytes(), 0));  // the window is open
    }
    board().meet(context);
  });
}

/// Their targets fail while the window closes, which is no failure of its owner.
TEST_P(Counters, that_are_closed_lose_no_more_targets) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    constexpr std::size_t kBytes = 8192;
    constexpr int kPuts = 500;
    const Case& one = GetParam();
    const Buffer memory(context, one, static_cast<std::size_t>(context.size()) * kBytes);
    const std::size_t own = static_cast<std::size_t>(context.rank()) * kBytes;
    if (context.rank() == 0) {
      Window window = context.window(kWindow, memory.all(), 1);
      window.wait({}, 0, 1);
      window.close();
      context.check();
    } else {
      HostStream host;
      Target target = context.target(0, kWindow);
      target.wait_connected();
      const auto may_be_closed = [](const auto& call) {
        try {
          call();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::closed) << error.what();
        }
      };
      may_be_closed([&] {
        for (int i = 0; i < kPuts; ++i) target.put_notify(Stream::host(host), memory.all().slice(0, kBytes), own, 0);
      });
      may_be_closed([&] { context.synchronize(Stream::host(host)); });
      target.close();
      may_be_closed([&] { context.check(); });
    }
    board().meet(context);
    if (context.rank() == 0) context.check();
  });
}

class LostCounters : public WithKills {};

TEST_P(LostCounters, end_every_wait) {
  Case of_three = GetParam();
  of_three.ranks = 3;
  Peers peers = of_three.peers();
  peers.keep_going = peers.untold = true;
  peers.limit = 60s;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    constexpr Rank kDies = 1;
    test::Order order(one);
    const Buffer memory(context, one, 64);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.all(), kCounters);
    Target target = context.target(0, kWindow);
    target.wait_connected();
    target.notify(order.stream(), 0);
    target.flush(order.stream());
    context.synchronize(order.stream());
    board().meet(context);
    if (context.rank() == kDies) ::raise(SIGKILL);
    if (context.rank() == 0) {
      expect_code(Code::peer_lost, [&] {
        window.wait(order.stream(), 0, 4);
        context.synchronize(order.stream());
      });
      expect_code(Code::peer_lost, [&] { static_cast<void>(window.wait_for(1, 1, 20s)); });
      board().set(kGo, 1);
      board().await(kGo, 2);
    } else {
      board().await(kGo, 1);
      target.notify(order.stream(), 0);  // the window is open
      target.flush(order.stream());
      context.synchronize(order.stream());
      board().set(kGo, 2);
    }
    target.close();
  });
  expect_only_killed(1, ended);
}

INSTANTIATE_IN_ITS_RANKS(Quick, Counters, testing::ValuesIn(of_windows()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostCounters, testing::ValuesIn(between_processes(of_windows())), CaseName());

}  // namespace
