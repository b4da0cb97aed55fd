// SPDX-License-Identifier: Apache-2.0
// Notices with tags: accesses to a window that tell its owner of themselves, and that the owner matches.
#include <signal.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "tests/conformance/windows.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Notices : public testing::TestWithParam<Case> {
 protected:
  struct Side : WindowSide {
    Side(Context& in, std::size_t window_bytes, std::size_t local_bytes)
        : WindowSide(in, GetParam(), window_bytes, local_bytes) {}

    void give(Tag tag) { target.put_tagged(stream(), {}, 0, tag); }
    /// "1:7 2:9": the notices of these ranks and tags are the next that match.
    std::string next(Rank source, Tag tag, std::size_t count) {
      std::string all;
      for (std::size_t i = 0; i < count; ++i) {
        const auto notice = window.match(source, tag, 20s);
        all += notice ? " " + std::to_string(notice->source) + ":" + std::to_string(notice->tag) : " none";
      }
      return all;
    }
  };
};

TEST_P(Notices, bring_the_bytes_in_the_order_of_each_source) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kSlot = 2000, kSlots = 256;  // more than may be under way
    const auto ranks = static_cast<std::size_t>(context.size());
    const std::uint64_t each = GetParam().times(300);
    Side side(context, ranks * kSlots * kSlot, kSlots * kSlot);
    const auto bytes_of_epoch = [](std::uint64_t epoch) { return static_cast<std::size_t>(epoch * 37 % kSlot); };
    const auto send = [&](std::uint64_t epoch) {
      const auto at = static_cast<std::size_t>(epoch % kSlots) * kSlot;
      const Slice piece = side.piece(at, bytes_of_epoch(epoch));
      side.order.run([=, rank = context.rank()] { fill(bytes_of(piece), {rank, kTag, epoch}); });
      side.target.put_tagged(side.stream(), piece, static_cast<std::size_t>(context.rank()) * kSlots * kSlot + at,
                             static_cast<Tag>(epoch));
    };
    if (context.rank() != 0) {
      for (std::uint64_t epoch = 1; epoch <= each; ++epoch) send(epoch);
    } else {
      std::vector<std::uint64_t> seen(ranks, 0);
      for (std::uint64_t i = 0; i < each * (ranks - 1); ++i) {
        const auto notice = side.window.match(kAnySource, kAnyTag, 20s);
        ASSERT_TRUE(notice);
        const auto source = static_cast<std::size_t>(notice->source);
        ASSERT_LT(source, ranks);
        const std::uint64_t epoch = ++seen[source];
        EXPECT_EQ(notice->tag, epoch);
        EXPECT_EQ(notice->bytes, bytes_of_epoch(epoch));
        EXPECT_EQ(notice->offset, (source * kSlots + static_cast<std::size_t>(epoch % kSlots)) * kSlot);
        const auto there = side.memory.bytes().subspan(notice->offset, notice->bytes);
        ASSERT_EQ(difference(there, {notice->source, kTag, epoch}), "") << epoch;
      }
      EXPECT_FALSE(side.window.match(kAnySource, kAnyTag, 0ns));
    }
    side.meet();
  });
}

TEST_P(Notices, are_matched_by_source_and_tag) {
  Case of_three = GetParam();
  of_three.ranks = 3;
  run_peers(of_three.peers(), [](Context& context) {
    Side side(context, kWord, kWord);
    if (context.rank() == 1) {
      for (const Tag tag : {5U, 6U, 5U, 7U, 9U}) side.give(tag);
    }
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(side.next(1, 9, 1), " 1:9");  // the last one, so all of them are seen now
      EXPECT_FALSE(side.window.match(2, kAnyTag, 0ns));
      EXPECT_EQ(side.window.match(kAnySource, 8, 2, 1ms), 0U);
    }
    board().meet(context);
    if (context.rank() == 2) {
      for (const Tag tag : {7U, 5U}) side.give(tag);
    }
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(side.next(2, kAnyTag, 1), " 2:7");
      EXPECT_EQ(side.next(kAnySource, 7, 1), " 1:7");
      EXPECT_EQ(side.next(1, 6, 1), " 1:6");
      EXPECT_EQ(side.next(kAnySource, 5, 3), " 1:5 1:5 2:5");
      EXPECT_FALSE(side.window.match(kAnySource, kAnyTag, 0ns));
    }
    board().meet(context);
  });
}

TEST_P(Notices, are_kept_and_bounded) {
  Case pair = GetParam();
  pair.ranks = 2;
  run_peers(pair.peers(), [](Context& context) {
    constexpr std::uint64_t kAll = 100, kKept = 64;
    Side side(context, kWord, kWord);
    if (context.rank() == 1) {
      for (std::uint64_t i = 1; i <= kAll; ++i) {
        side.give(static_cast<Tag>(i));
        side.order.run([i] { board().set(kGo, i); });
      }
    } else {
      board().await(kGo, kKept);
      EXPECT_FALSE(side.window.match(1, kAll + 1, 20ms));  // sees them, and takes none
      EXPECT_EQ(board().word(kGo).load(), kKept);
      for (std::uint64_t i = 1; i <= kAll; ++i) {
        const auto notice = side.window.match(1, kAnyTag, 20s);
        ASSERT_TRUE(notice);
        EXPECT_EQ(notice->tag, i);
        EXPECT_LE(board().word(kGo).load(), i + kKept);
      }
    }
    side.meet();
  });
}

TEST_P(Notices, tell_that_bytes_were_read) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kBytes = 300'000;
    const std::uint64_t rounds = GetParam().times(20);
    const auto readers = static_cast<std::size_t>(context.size() - 1);
    Side side(context, kBytes, kBytes);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      if (context.rank() == 0) fill(side.memory.bytes(), {0, kTag, round});
      board().meet(context);
      if (context.rank() == 0) {
        EXPECT_EQ(side.window.match(kAnySource, kTag, readers, 20s), readers);
        poison(side.memory.bytes());
      } else {
        side.target.get_tagged(side.stream(), side.local.all(), 0, kTag);
        side.flush();
        EXPECT_EQ(difference(side.local.bytes(), {0, kTag, round}), "");
      }
      board().meet(context);
    }
  });
}

TEST_P(Notices, outlive_their_target) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, 64, 64);
    const auto peers = static_cast<std::size_t>(context.size()) - 1;
    for (std::uint64_t round = 1; round <= GetParam().times(20); ++round) {
      if (context.rank() != 0) {
        Target target = context.target(0, kWindow);
        set_word(side.local.bytes(), 0, round);
        target.put_tagged({}, side.piece(0, kWord), 0, static_cast<Tag>(round));
        if (round % 2 == 0) target.get_tagged({}, side.piece(kWord, kWord), 0, static_cast<Tag>(round));
      }
      board().meet(context);
      if (context.rank() == 0) {
        const std::size_t notices = round % 2 == 0 ? 2 * peers : peers;
        EXPECT_EQ(side.window.match(kAnySource, static_cast<Tag>(round), notices, 20s), notices);
        EXPECT_EQ(word_at(side.memory.bytes(), 0), round);
      }
      board().meet(context);
    }
  });
}

TEST_P(Notices, that_have_no_room_end_when_the_window_closes) {
  Case pair = GetParam();
  pair.ranks = 2;
  run_peers(with_untold(pair.peers()), [](Context& context) {
    constexpr std::uint64_t kKept = 64;
    Side side(context, kWord, kWord);
    if (context.rank() == 0) {
      board().await(kGo, kKept);
      EXPECT_FALSE(side.window.match(1, kAnyTag - 1, 0ns));
      side.window.close(20s);
    } else {
      expect_code(Code::closed, [&] {
        for (std::uint64_t i = 1;; ++i) {
          side.give(static_cast<Tag>(i));
          side.order.run([i] { board().set(kGo, i); });
          if (i == kKept + 2) context.synchronize(side.stream());
        }
      });
    }
    board().meet(context);
  });
}

TEST_P(Notices, end_with_the_window_and_with_an_abort) {
  Peers peers = with_untold(GetParam().peers());
  run_peers(peers, [](Context& context) {
    Side side(context, kWord, kWord);
    side.target.wait_connected();
    if (context.rank() == 0) {
      Window other = context.window("other", side.memory.all());
      EXPECT_FALSE(other.match(kAnySource, kAnyTag, 0ns));
      other.close();
      expect_code(Code::misuse, [&] { static_cast<void>(other.match(kAnySource, kAnyTag, 20s)); });
      EXPECT_FALSE(side.window.match(kAnySource, kAnyTag, 0ns));
      board().meet(context);
      expect_code(Code::aborted, [&] { static_cast<void>(side.window.match(kAnySource, kAnyTag, 20s)); });
    } else {
      board().meet(context);
      if (context.rank() == 1) context.abort("enough");
    }
    board().meet(context);
  });
}

class LostNotices : public WithKills {};

TEST_P(LostNotices, end_what_waits_for_them_and_those_of_others_come) {
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
    if (context.rank() == 0) window = context.window(kWindow, memory.all());
    Target target = context.target(0, kWindow);
    target.put_tagged(order.stream(), {}, 0, 7);
    target.flush(order.stream());
    context.synchronize(order.stream());
    if (context.rank() == 0) {
      EXPECT_EQ(window.match(kAnySource, 7, 3, 20s), 3U);
    }
    board().meet(context);
    if (context.rank() == kDies) ::raise(SIGKILL);
    if (context.rank() == 0) {
      expect_code(Code::peer_lost, [&] { static_cast<void>(window.match(kAnySource, kAnyTag, 20s)); });
      board().set(kGo, 1);
      const auto notice = window.match(kAnySource, kAnyTag, 20s);  // told once
      EXPECT_TRUE(notice && notice->source == 2);
      board().set(kGo, 2);
    } else {
      board().await(kGo, 1);
      target.put_tagged(order.stream(), {}, 0, 8);
      board().await(kGo, 2);
    }
    target.close();
  });
  expect_only_killed(1, ended);
}

std::vector<Case> on_hosts() {
  std::vector<Case> all = of_windows();
  std::erase_if(all, [](const Case& one) { return one.cuda; });
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, Notices, testing::ValuesIn(on_hosts()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostNotices, testing::ValuesIn(between_processes(on_hosts())), CaseName());

}  // namespace
