// SPDX-License-Identifier: Apache-2.0
// Memory that is attached to a window after it was made, and detached.
#include <signal.h>

#include <algorithm>
#include <string>

#include "tests/conformance/windows.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kOwn = 64;   // bytes of the window itself
constexpr std::size_t kPlace = 5;  // on the board: the offset of a piece

class Attached : public testing::TestWithParam<Case> {
 protected:
  /// Rank 0 has a window with a counter, and every rank a target of it that is connected.
  struct Side : WindowSide {
    Side(Context& in, std::size_t local_bytes) : WindowSide(in, GetParam(), kOwn, local_bytes, 1) {
      target.wait_connected();
      board().meet(in);
    }
    /// The owner's `value` at every rank.
    std::uint64_t told(std::uint64_t value) const {
      if (context.rank() == 0) board().set(kPlace, value);
      board().meet(context);
      const std::uint64_t place = board().word(kPlace).load();
      board().meet(context);
      return place;
    }
    /// Accesses at `offset` are refused, and so are later ones.
    void expect_gone(std::size_t offset) {
      for (int i = 0; i < 2; ++i) {
        try {
          target.get(stream(), piece(0, kWord), offset);
          flush();
          ADD_FAILURE() << "not refused";
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == Code::bad_argument || error.code() == Code::closed) << error.what();
        }
      }
    }
  };
};

TEST_P(Attached, memory_is_reached_as_the_window_is) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kPart = 3000;
    const auto ranks = static_cast<std::size_t>(context.size());
    const auto mine = static_cast<std::size_t>(context.rank());
    Side side(context, 2 * kPart);
    const Buffer more(context, GetParam(), ranks * kPart + 2 * kWord);
    const std::size_t at = side.told(context.rank() == 0 ? side.window.attach(more.all()) : 0);
    EXPECT_GE(at, kOwn);
    const std::size_t words = at + ranks * kPart;
    if (context.rank() == 0) {
      set_word(more.bytes().subspan(ranks * kPart), 0, 0);
      set_word(more.bytes().subspan(ranks * kPart), 1, 0);
    }
    board().meet(context);
    fill(side.local.bytes().first(kPart), {context.rank(), kTag, 1});
    side.target.put_notify(side.stream(), side.piece(0, kPart), at + mine * kPart, 0);
    side.target.fetch_add(side.stream(), words, 1 + mine, side.piece(kPart, kWord));
    set_word(side.local.bytes().subspan(kPart), 1, 5);
    side.target.accumulate(side.stream(), Op::sum, Number::uint64, side.piece(kPart + kWord, kWord), words + kWord);
    side.target.put(side.stream(), side.piece(0, kWord), mine % 8 * kWord);  // of the window itself
    side.meet();
    if (context.rank() == 0) {
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Stamp stamp{static_cast<Rank>(rank), kTag, 1};
        EXPECT_EQ(difference(more.bytes().subspan(rank * kPart, kPart), stamp), "");
        EXPECT_EQ(difference(side.memory.bytes().subspan(rank % 8 * kWord, kWord), stamp), "");
      }
      EXPECT_EQ(word_at(more.bytes().subspan(ranks * kPart), 0), ranks * (ranks + 1) / 2);
      EXPECT_EQ(word_at(more.bytes().subspan(ranks * kPart), 1), 5 * ranks);
      EXPECT_EQ(side.window.count(0), ranks);
      EXPECT_NE(side.window.describe().find("1 pieces attached"), std::string::npos) << side.window.describe();
    }
    side.target.get(side.stream(), side.piece(kPart, kPart), at + (mine + 1) % ranks * kPart);
    side.flush();
    EXPECT_EQ(difference(side.local.bytes().subspan(kPart), {static_cast<Rank>((mine + 1) % ranks), kTag, 1}), "");
    board().meet(context);
  });
}

TEST_P(Attached, memory_may_have_its_address_as_its_offset) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kPieces = 5, kBytes = 80;
    Side side(context, kBytes);
    std::vector<Buffer> pieces;
    for (std::size_t i = 0; i < kPieces; ++i) {
      pieces.emplace_back(context, GetParam(), kBytes);
      const std::size_t at = reinterpret_cast<std::uintptr_t>(pieces.back().bytes().data());
      if (context.rank() == 0) side.window.attach(at, pieces.back().all());
      const std::size_t there = side.told(at);
      if (context.rank() == 1) {
        fill(side.local.bytes(), {1, kTag, i});
        const std::vector<Extent> extents{{0, there + 8, 16}, {16, 0, 8}, {24, there + 24, 40}};
        side.target.put(side.stream(), side.local.all(), extents);
      }
      side.meet();
      if (context.rank() == 0) {
        const auto bytes = pieces.back().bytes();
        EXPECT_EQ(unlike_poison(bytes.first(8)), "");
        EXPECT_EQ(difference(bytes.subspan(8, 16), {1, kTag, i}), "");
        EXPECT_EQ(difference(side.memory.bytes().first(8), {1, kTag, i}, 16), "");
        EXPECT_EQ(difference(bytes.subspan(24, 40), {1, kTag, i}, 24), "");
        EXPECT_EQ(unlike_poison(bytes.subspan(64)), "");
      }
    }
    board().meet(context);
  });
}

TEST_P(Attached, memory_gives_notices) {
  if (GetParam().cuda) return;
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, kOwn);
    const Buffer more(context, GetParam(), kOwn);
    const std::size_t at = side.told(context.rank() == 0 ? side.window.attach(more.all()) : 0);
    if (context.rank() == 1) {
      fill(side.local.bytes(), {1, kTag, 1});
      side.target.put_tagged(side.stream(), side.piece(0, kWord), at + kWord, 7);
      side.target.get_tagged(side.stream(), side.piece(kWord, kWord), at + 2 * kWord, 8);
    } else {
      for (const Tag tag : {7U, 8U}) {
        const auto notice = side.window.match(1, kAnyTag, 20s);
        ASSERT_TRUE(notice);
        EXPECT_EQ(notice->tag, tag);
        EXPECT_EQ(notice->offset, at + (tag - 6) * kWord);
        EXPECT_EQ(notice->bytes, kWord);
      }
      EXPECT_EQ(difference(more.bytes().subspan(kWord, kWord), {1, kTag, 1}), "");
    }
    side.meet();
  });
}

TEST_P(Attached, memory_that_is_detached_is_not_touched) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    constexpr std::size_t kBytes = 20000;
    Side side(context, kBytes);
    const Buffer more(context, GetParam(), kBytes);
    const Buffer other(context, GetParam(), kBytes);
    const std::size_t at = side.told(context.rank() == 0 ? side.window.attach(more.all()) : 0);
    if (context.rank() == 0) {
      board().await(kGo, static_cast<std::uint64_t>(context.size()) - 1);
      side.window.detach(at);
      poison(more.bytes());
      board().meet(context);
    } else {
      fill(side.local.bytes(), {context.rank(), kTag, 1});
      side.target.put(side.stream(), side.local.all(), at);
      side.flush();
      board().word(kGo).fetch_add(1);
      try {
        for (;;) {
          side.target.put(side.stream(), side.local.all(), at);
          side.flush();
        }
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == Code::closed || error.code() == Code::bad_argument) << error.what();
      }
      side.expect_gone(at);
      try {
        context.check();
      } catch (const Error& error) {  // of an access that found it detached
        EXPECT_EQ(error.code(), Code::closed) << error.what();
      }
      side.target.put(side.stream(), side.piece(0, kWord), 0);  // the window itself is open
      side.target.notify(side.stream(), 0);
      side.flush();
      board().meet(context);
    }
    if (context.rank() == 0) {
      EXPECT_EQ(unlike_poison(more.bytes()), "");
      EXPECT_EQ(side.window.count(0), static_cast<std::uint64_t>(context.size()) - 1);  // and has not failed
      side.window.attach(at, other.all().slice(0, kWord));
    }
    board().meet(context);
    static_cast<void>(side.told(0));
    if (context.rank() == 1) {
      fill(side.local.bytes().first(kWord), {1, kTag, 2});
      side.target.put(side.stream(), side.piece(0, kWord), at);
      expect_code(Code::bad_argument, [&] { side.target.put(side.stream(), side.local.all(), at); });
    }
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(difference(other.bytes().first(kWord), {1, kTag, 2}), "");
      EXPECT_EQ(unlike_poison(other.bytes().subspan(kWord)), "");
      EXPECT_EQ(unlike_poison(more.bytes()), "");
    }
    board().meet(context);
  });
}

/// Closing the target waits for it, and detaching for a stream that has it yet to do.
TEST_P(Attached, memory_is_kept_until_what_was_enqueued_has_run) {
  if (!GetParam().host || GetParam().cuda) return;
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kMayRun = 11, kClosed = 12;  // on the board
    Side side(context, kOwn);
    const Buffer more(context, GetParam(), kOwn);
    const std::size_t at = side.told(context.rank() == 0 ? side.window.attach(more.all()) : 0);
    if (context.rank() == 1) {
      fill(side.local.bytes(), {1, kTag, 1});
      side.target.put(side.stream(), side.local.all(), at);
      side.flush();
      side.order.run([] { board().await(kMayRun, 1); });
      fill(side.local.bytes(), {1, kTag, 2});
      side.target.put(side.stream(), side.local.all(), at);
      expect_code(Code::timeout, [&] { side.target.close(20ms); });
      board().set(kMayRun, 1);
      side.target.close();
      board().set(kClosed, 1);
    } else {
      board().await(kClosed, 1);
      EXPECT_EQ(difference(more.bytes(), {1, kTag, 2}), "");
      side.window.detach(at);
    }
    board().meet(context);
  });
}

TEST_P(Attached, memory_comes_and_goes_while_other_memory_is_used) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, kWord);
    std::uint64_t sum = 0;
    if (context.rank() == 0) set_word(side.memory.bytes(), 0, 0);
    board().meet(context);
    for (std::uint64_t round = 1; round <= GetParam().times(20) / 2; ++round) {
      const auto bytes = static_cast<std::size_t>(8 + round * 1000 % 7000);
      const Buffer more(context, GetParam(), bytes);
      if (context.rank() == 0) std::ranges::fill(more.bytes(), std::byte{0});
      const std::size_t at = side.told(context.rank() == 0 ? side.window.attach(more.all()) : 0);
      side.target.fetch_add(side.stream(), at, round, side.local.all());
      side.target.fetch_add(side.stream(), 0, 1, side.local.all());
      side.meet();
      sum += static_cast<std::uint64_t>(context.size());
      if (context.rank() == 0) {
        EXPECT_EQ(word_at(more.bytes(), 0), round * static_cast<std::uint64_t>(context.size()));
        EXPECT_EQ(word_at(side.memory.bytes(), 0), sum);
        side.window.detach(at);
      }
      board().meet(context);
    }
  });
}

TEST_P(Attached, pieces_that_adjoin_are_reached_as_one) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kParts = 4, kPart = 1000, kAll = kOwn + kParts * kPart;
    Side side(context, kAll);
    const Buffer more(context, GetParam(), kParts * kPart);
    if (context.rank() == 0) {
      // Not in the order of their offsets, behind the window itself.
      for (const std::size_t i : {2, 0, 3, 1}) side.window.attach(kOwn + i * kPart, more.all().slice(i * kPart, kPart));
    }
    board().meet(context);
    EXPECT_TRUE(side.target.reaches(0, kAll));
    EXPECT_TRUE(side.target.reaches(kAll - 1, 1));
    EXPECT_FALSE(side.target.reaches(0, kAll + 1));
    EXPECT_FALSE(side.target.reaches(kAll, 1));
    EXPECT_FALSE(side.target.reaches(~std::size_t{0}, 8));
    EXPECT_TRUE(side.target.reaches(kOwn, 0));
    if (context.rank() == 1) {
      fill(side.local.bytes(), {1, kTag, 1});
      side.target.put(side.stream(), side.local.all(), 0);
      const Extent beyond{0, kPart, kAll};  // refused, and changes nothing
      expect_code(Code::bad_argument, [&] { side.target.put(side.stream(), side.local.all(), {&beyond, 1}); });
    }
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(difference(side.memory.bytes(), {1, kTag, 1}), "");
      EXPECT_EQ(difference(more.bytes(), {1, kTag, 1}, kOwn), "");
      side.window.detach(kOwn + kPart);
    }
    board().meet(context);
    EXPECT_FALSE(side.target.reaches(kOwn, kPart + 1));
    EXPECT_TRUE(side.target.reaches(0, kOwn + kPart));
    side.target.get(side.stream(), side.piece(0, 2 * kPart), kOwn + 2 * kPart);
    side.meet();
    EXPECT_EQ(difference(side.local.bytes().first(2 * kPart), {1, kTag, 1}, kOwn + 2 * kPart), "");
  });
}

/// A window that every rank maps, with memory that some grounds cannot map, and the other way round.
TEST_P(Attached, memory_may_be_of_another_kind_than_the_window) {
  if (GetParam().cuda) return;  // a stream of a GPU sends no request for atomics to the owner
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, kWord);
    Case other = GetParam();
    other.user = !other.user;
    const Buffer more(context, other, 2 * kWord);
    if (context.rank() == 0) set_word(more.bytes(), 0, 0);
    const std::size_t at = side.told(context.rank() == 0 ? side.window.attach(more.all()) : 0);
    side.target.fetch_add(side.stream(), at, 1, side.local.all());
    side.flush();
    if (context.rank() == 1) {
      fill(side.local.bytes(), {1, kTag, 1});
      side.target.put_notify(side.stream(), side.local.all(), at + kWord, 0);
    }
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(more.bytes(), 0), static_cast<std::uint64_t>(context.size()));
      EXPECT_EQ(difference(more.bytes().subspan(kWord), {1, kTag, 1}), "");
      EXPECT_EQ(side.window.count(0), 1U);
    }
    board().meet(context);
  });
}

TEST_P(Attached, many_pieces_come_and_go) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kMany = 150, kAt = 4096;
    Side side(context, kMany * kWord);
    const Buffer more(context, GetParam(), kMany * kWord);
    for (std::uint64_t round = 1; round <= 3; ++round) {
      // In each round the pieces begin elsewhere, so that those of the round before lie between them.
      const std::size_t words = round == 2 ? 2 : 1;
      const std::size_t shift = kAt + (round - 1) * kWord;
      for (std::size_t i = 0; context.rank() == 0 && i + words <= kMany; i += words)
        side.window.attach(shift + i * kWord, more.all().slice(i * kWord, words * kWord));
      board().meet(context);
      if (context.rank() == 1) {
        for (std::size_t i = 0; i < kMany; ++i) {
          fill(side.local.bytes().subspan(i * kWord, kWord), {1, kTag, round * kMany + i});
          side.target.put(side.stream(), side.piece(i * kWord, kWord), shift + i * kWord);
          if (i % 3 == 0) side.flush();
        }
      }
      side.meet();
      for (std::size_t i = 0; context.rank() == 0 && i < kMany; ++i)
        EXPECT_EQ(difference(more.bytes().subspan(i * kWord, kWord), {1, kTag, round * kMany + i}), "") << i;
      for (std::size_t i = 0; context.rank() == 0 && i + words <= kMany; i += words)
        side.window.detach(shift + i * kWord);
      board().meet(context);
    }
  });
}

TEST_P(Attached, say_what_is_wrong) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, 256);
    const Slice all = side.local.all();
    const auto refused = [](Code code, auto call) { return expect_code(code, call); };
    if (context.rank() == 0) {
      refused(Code::bad_argument, [&] { static_cast<void>(side.window.attach(Slice())); });
      refused(Code::bad_argument, [&] { static_cast<void>(side.window.attach(all.slice(4, 8))); });
      refused(Code::bad_argument, [&] { side.window.attach(1004, all.slice(0, 8)); });
      refused(Code::bad_argument, [&] { side.window.attach(kOwn - 8, all.slice(0, 8)); });
      refused(Code::bad_argument, [&] { side.window.attach(~std::size_t{0} - 7, all.slice(0, 16)); });
      side.window.attach(1000, all.slice(0, 16));
      for (const std::size_t at : {992, 1000, 1008})
        refused(Code::bad_argument, [&] { side.window.attach(at, all.slice(0, 16)); });
      side.window.attach(1016, all.slice(16, 8));
      side.window.attach(992, all.slice(24, 8));
      refused(Code::bad_argument, [&] { side.window.detach(1008); });
      EXPECT_GE(side.window.attach(all.slice(32, 8)), 1024U);
    }
    board().meet(context);
    side.target.get(side.stream(), all.slice(64, 16), 1000);
    // An atomic or a counted access is not of several pieces, though they adjoin.
    refused(Code::bad_argument, [&] { side.target.get_notify(side.stream(), all.slice(64, 24), 1000, 0); });
    refused(Code::bad_argument, [&] { side.target.get(side.stream(), all.slice(64, 40), 1000); });
    refused(Code::bad_argument, [&] { side.target.get(side.stream(), all.slice(64, 8), kOwn - 4); });
    const auto error = refused(Code::bad_argument, [&] { side.target.get(side.stream(), all.slice(64, 8), 984); });
    EXPECT_NE(std::string(error->what()).find("attached at offset 984"), std::string::npos) << error->what();
    refused(Code::bad_argument, [&] { side.target.notify(side.stream(), 1); });
    side.meet();
    if (context.rank() == 0) {
      side.window.close();
      refused(Code::misuse, [&] { static_cast<void>(side.window.attach(all.slice(64, 8))); });
    }
    board().meet(context);
  });
}

class LostAttached : public WithKills {};

TEST_P(LostAttached, memory_is_lost_with_its_owner) {
  Peers peers = GetParam().peers();
  peers.keep_going = peers.untold = true;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    test::Order order(one);
    const Buffer memory(context, one, kOwn);
    const Buffer more(context, one, kOwn);
    if (context.rank() == 1) {
      Window window = context.window(kWindow, memory.all());
      window.attach(1000, more.all());
      board().set(kGo + 10, 1);
      die_when_ready();
    }
    board().await(kGo + 10, 1);
    Target target = context.target(1, kWindow);
    target.wait_connected();
    expect_loss_of_rank_1(context, [&] {
      for (int i = 0;; ++i) {
        if (i == 3) board().set(kReady, 1);
        target.put(order.stream(), memory.all(), 1000);
        target.flush(order.stream());
        context.synchronize(order.stream());
      }
    });
    target.close();
  });
  expect_only_rank_1_killed(ended);
}

INSTANTIATE_IN_ITS_RANKS(Quick, Attached, testing::ValuesIn(of_windows()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostAttached, testing::ValuesIn(between_processes(of_windows())), CaseName());

}  // namespace
