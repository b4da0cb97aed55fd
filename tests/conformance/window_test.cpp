// SPDX-License-Identifier: Apache-2.0
// Windows: memory that peers put to, get from and change at will.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>

#include "base/crossing_copy.hpp"
#include "runtime/block.hpp"
#include "tests/conformance/windows.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Windows : public testing::TestWithParam<Case> {
 protected:
  struct Side : WindowSide {
    Side(Context& in, std::size_t window_bytes, std::size_t local_bytes)
        : WindowSide(in, GetParam(), window_bytes, local_bytes) {}
  };
};

TEST_P(Windows, get_every_byte_of_what_was_put_and_no_other) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kPiece = 40000;
    constexpr std::size_t kPieces = 8;
    const auto ranks = static_cast<std::size_t>(context.size());
    Side side(context, ranks * kPieces * kPiece, std::max(ranks, std::size_t{2}) * kPieces * kPiece);
    const auto own = side.local.bytes().first(kPieces * kPiece);
    fill(own, {context.rank(), kTag, 1});
    const std::size_t first = static_cast<std::size_t>(context.rank()) * kPieces;
    for (std::size_t i = 0; i < kPieces; ++i)  // of each piece all but its last 8 - i bytes
      side.target.put(side.stream(), side.piece(i * kPiece, kPiece - 8 + i), (first + i) * kPiece);
    side.meet();
    const auto check = [&](std::span<const std::byte> all) {
      for (std::size_t i = 0; i < ranks * kPieces; ++i) {
        const auto piece = all.subspan(i * kPiece, kPiece);
        const std::size_t bytes = kPiece - 8 + i % kPieces;
        EXPECT_EQ(difference(piece.first(bytes), {static_cast<Rank>(i / kPieces), kTag, 1}, i % kPieces * kPiece), "");
        EXPECT_EQ(unlike_poison(piece.subspan(bytes)), "");
      }
    };
    if (context.rank() == 0) check(side.memory.bytes());
    side.target.get(side.stream(), side.local.all().slice(0, ranks * kPieces * kPiece), 0);
    side.meet();
    check(side.local.bytes());
  });
}

/// Each rank that maps the window writes its piece of it, also when its target is closed.
TEST_P(Windows, are_mapped_for_code_of_the_program) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kPiece = 5000;
    const auto own = static_cast<std::size_t>(context.rank()) * kPiece;
    Side side(context, static_cast<std::size_t>(context.size()) * kPiece, kWord);
    const Region mapped = side.target.mapped();
    const bool is_shared = GetParam().ground.name == "shm" && !GetParam().user;
    if (is_shared || GetParam().ground.name == "threads") {
      EXPECT_EQ(mapped.bytes(), side.target.bytes());
    }
    side.target.close();
    if (mapped.bytes() > 0) fill(std::span(mapped.data() + own, kPiece), {context.rank(), kTag, 1});
    board().word(static_cast<std::size_t>(context.rank())).store(mapped.bytes());
    board().meet(context);
    for (int rank = 0; context.rank() == 0 && rank < context.size(); ++rank) {
      const auto piece = side.memory.bytes().subspan(static_cast<std::size_t>(rank) * kPiece, kPiece);
      if (board().word(static_cast<std::size_t>(rank)).load() > 0) {
        EXPECT_EQ(difference(piece, {rank, kTag, 1}), "");
      }
    }
    board().meet(context);
  });
}

TEST_P(Windows, agree_with_an_oracle) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kBytes = 100000;
    const auto ranks = static_cast<std::size_t>(context.size());
    Side side(context, ranks * kBytes, 2 * kBytes);
    const std::size_t begin = static_cast<std::size_t>(context.rank()) * kBytes;
    std::mt19937 random(static_cast<unsigned>(20261128 + context.rank()));
    std::vector<std::byte> oracle(kBytes);
    poison(oracle);
    side.target.get(side.stream(), side.piece(0, kBytes), begin);
    side.flush();
    for (std::uint64_t round = 0; round < GetParam().times(60); ++round) {
      const std::size_t bytes = random() % (std::size_t{1} << random() % 17) % kBytes;
      const std::size_t at = random() % (kBytes - bytes + 1);
      const std::size_t from = random() % (kBytes - bytes + 1);
      const auto source = side.local.bytes().subspan(from, bytes);
      fill(source, {context.rank(), kTag, round + 1}, at);
      side.target.put(side.stream(), side.piece(from, bytes), begin + at);
      side.flush();
      std::copy(source.begin(), source.end(), oracle.begin() + static_cast<std::ptrdiff_t>(at));
      const std::size_t read = random() % (kBytes - at + 1);
      side.target.get(side.stream(), side.piece(kBytes, read), begin + at);
      side.flush();
      ASSERT_TRUE(std::equal(oracle.begin() + static_cast<std::ptrdiff_t>(at),
                             oracle.begin() + static_cast<std::ptrdiff_t>(at + read),
                             side.local.bytes().begin() + kBytes));
    }
    board().meet(context);
  });
}

TEST_P(Windows, take_rows_and_scattered_extents) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kRows = 20, kRow = 24, kWide = 64;
    const auto own = static_cast<std::size_t>(context.rank()) * kRows * kWide;
    Side side(context, static_cast<std::size_t>(context.size()) * kRows * kWide, 2 * kRows * kWide);
    const auto local = side.local.bytes();
    fill(local.first(kRows * kRow), {context.rank(), kTag, 1});
    const auto rows = strided(kRows, kRow, kRow, kWide, own + 8);
    side.target.put(side.stream(), side.piece(0, kRows * kRow), rows);
    side.target.flush_local(side.stream());
    side.order.run([local] { poison(local.first(kRows * kRow)); });
    side.meet();
    if (context.rank() == 0) {
      for (std::size_t row = 0; row < static_cast<std::size_t>(context.size()) * kRows; ++row) {
        const auto there = side.memory.bytes().subspan(row * kWide, kWide);
        const Stamp stamp{static_cast<Rank>(row / kRows), kTag, 1};
        EXPECT_EQ(difference(there.subspan(8, kRow), stamp, row % kRows * kRow), "") << row;
        EXPECT_EQ(unlike_poison(there.first(8)), "");
        EXPECT_EQ(unlike_poison(there.subspan(8 + kRow)), "");
      }
    }
    std::vector<Extent> backwards;
    for (std::size_t row = 0; row < kRows; ++row)
      backwards.push_back({(kRows - 1 - row) * kRow, own + 8 + row * kWide, kRow});
    side.target.get(side.stream(), side.piece(0, kRows * kRow), backwards);
    side.target.flush_local(side.stream());
    context.synchronize(side.stream());
    for (std::size_t row = 0; row < kRows; ++row)
      EXPECT_EQ(difference(local.subspan((kRows - 1 - row) * kRow, kRow), {context.rank(), kTag, 1}, row * kRow), "");
    poison(local);  // one that is wrong: none is written
    backwards.back().there = static_cast<std::size_t>(context.size()) * kRows * kWide;
    EXPECT_THROW(side.target.put(side.stream(), side.piece(0, kRows * kRow), backwards), Error);
    backwards.back() = {kRows * kRow - 1, own, 2};
    EXPECT_THROW(side.target.put(side.stream(), side.piece(0, kRows * kRow), backwards), Error);
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(difference(side.memory.bytes().subspan(8, kRow), {0, kTag, 1}), "");
    }
    board().meet(context);
  });
}

TEST_P(Windows, are_found_whichever_comes_first) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const bool owner = context.rank() == 0;
    const Buffer memory(context, one, 4 * kWord);
    Target early = context.target(0, "late");
    Target scoped = context.target(0, kWindow);
    if (!owner) {
      EXPECT_FALSE(early.connected());
    }
    board().meet(context);
    Window window;
    Window late;
    if (owner) {
      late = context.window("late", memory.all().slice(0, 2 * kWord));
      window = context.window(kWindow, memory.all().slice(2 * kWord, 2 * kWord));
    }
    Target again = context.target(0, kWindow);  // a second one of the same window
    EXPECT_EQ(early.bytes(), 2 * kWord);
    EXPECT_EQ(early.peer(), 0);
    EXPECT_EQ(scoped.bytes(), again.bytes());
    const Buffer local(context, one, kWord);
    if (context.rank() == 1) {
      set_word(local.bytes(), 0, 77);
      again.put({}, local.all(), kWord);
      again.flush({});
    }
    board().meet(context);
    if (owner) {
      EXPECT_EQ(word_at(memory.bytes(), 3), 77U);
    }
    scoped.get({}, local.all(), kWord);
    scoped.flush({});
    EXPECT_EQ(word_at(local.bytes(), 0), 77U);
    board().meet(context);
  });
}

TEST_P(Windows, are_reached_by_handles_that_are_genuine) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer memory(context, one, 16 * kWord);
    Window window;
    WindowHandle handle{};
    constexpr std::size_t kAt = 10;  // on the board
    if (context.rank() == 0) {
      window = context.window(kWindow, memory.all());
      handle = window.handle(4 * kWord, 2 * kWord);
      for (std::size_t i = 0; i < handle.size() / kWord; ++i) board().set(kAt + i, word_at(handle, i));
      EXPECT_THROW(static_cast<void>(window.handle(15 * kWord, 2 * kWord)), Error);
    }
    board().meet(context);
    for (std::size_t i = 0; i < handle.size() / kWord; ++i) set_word(handle, i, board().word(kAt + i).load());
    Target target = context.target(handle);
    EXPECT_EQ(target.bytes(), 2 * kWord);
    const Buffer local(context, one, 3 * kWord);
    EXPECT_THROW(target.get({}, local.all(), 0), Error);
    set_word(local.bytes(), 0, 100 + static_cast<std::uint64_t>(context.rank()));
    if (context.rank() < 2) {
      target.put({}, local.all().slice(0, kWord), static_cast<std::size_t>(context.rank()) * kWord);
      target.flush({});
    }
    board().meet(context);
    if (const Region mapped = target.mapped(); mapped.bytes() > 0) {
      EXPECT_EQ(mapped.bytes(), 2 * kWord);
      EXPECT_EQ(word_at(std::span(mapped.data(), kWord), 0), 100U);
    }
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(memory.bytes(), 4), 100U);
      EXPECT_EQ(unlike_poison(memory.bytes().first(4 * kWord)), "");
      EXPECT_EQ(unlike_poison(memory.bytes().subspan(6 * kWord)), "");
    }
    // Any other byte: the handle is refused at once.
    for (std::size_t i = 0; i < handle.size(); ++i) {
      WindowHandle other = handle;
      other[i] ^= std::byte{0x10};
      EXPECT_THROW(static_cast<void>(context.target(other)), Error) << "byte " << i;
    }
    for (const std::size_t bytes : {std::size_t{0}, handle.size() - 1})
      EXPECT_THROW(static_cast<void>(context.target(std::span(handle).first(bytes))), Error);
    target.close();
    board().meet(context);
    if (context.rank() == 0) window.close();
    board().meet(context);
    Target stale = context.target(handle);  // genuine, but of a window that is closed
    try {
      stale.wait_connected();
      ADD_FAILURE() << "a stale handle opens";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::misuse) << error.what();
    }
    EXPECT_THROW(context.check(), Error);
    board().meet(context);
  });
}

TEST_P(Windows, that_are_closed_refuse_late_accesses_and_may_be_made_anew) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const bool owner = context.rank() == 0;
    for (std::uint64_t round = 0; round < 3; ++round) {
      const Buffer memory(context, one, 8 * kWord);
      const Buffer local(context, one, kWord);
      Window window;
      if (owner) window = context.window(kWindow, memory.all());
      test::Order order(one);
      Target target = context.target(0, kWindow);
      set_word(local.bytes(), 0, round);
      target.put(order.stream(), local.all(), kWord * static_cast<std::size_t>(context.rank() % 8));
      target.flush(order.stream());
      context.synchronize(order.stream());
      board().meet(context);
      if (owner) {
        window.close();
        EXPECT_EQ(word_at(memory.bytes(), 0), round);
        poison(memory.bytes());
      }
      board().meet(context);
      const auto refused = [&](const auto& call) {
        try {
          call();
          ADD_FAILURE() << "not refused";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::closed) << error.what();
        }
      };
      refused([&] { target.put(order.stream(), local.all(), 0); });
      refused([&] { target.get(order.stream(), local.all(), 0); });
      board().meet(context);
      if (owner) {
        EXPECT_EQ(unlike_poison(memory.bytes()), "");
      }
    }
  });
}

TEST_P(Windows, that_are_closed_meanwhile_let_enqueued_accesses_move_nothing) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr std::size_t kShut = 10;  // on the board: ranks that have seen it
    const Buffer memory(context, one, 8 * kWord);
    const Buffer local(context, one, kWord);
    fill(local.bytes(), {context.rank(), kTag, 1});
    const auto others = static_cast<std::uint64_t>(context.size()) - 1;
    if (context.rank() == 0) {
      Window window = context.window(kWindow, memory.all());
      board().meet(context);
      window.close();
      EXPECT_EQ(board().word(kShut).load(), others) << "before what was enqueued has run";
      EXPECT_EQ(unlike_poison(memory.bytes()), "");
    } else {
      HostStream host;
      const Stream stream = Stream::host(host);
      Target target = context.target(0, kWindow);
      target.wait_connected();
      host.run([&] { board().await(kShut, others); });
      const auto put = [&] {
        try {
          target.put(stream, local.all(), 0);
          return false;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::closed) << error.what();
          return true;
        }
      };
      EXPECT_FALSE(put());
      board().meet(context);
      expect_within(10s, put);
      board().word(kShut).fetch_add(1);
      try {
        context.synchronize(stream);
        ADD_FAILURE() << "an access that found the window closed is not told";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::closed) << error.what();
      }
    }
    board().meet(context);
  });
}

TEST_P(Windows, say_what_is_wrong) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer memory(context, one, 64);
    const auto refused = [](Code code, const auto& call) {
      try {
        call();
        ADD_FAILURE() << "not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
      }
    };
    Window window = context.window(kWindow, memory.all());
    refused(Code::misuse, [&] { static_cast<void>(context.window(kWindow, memory.all())); });
    refused(Code::bad_argument, [&] { static_cast<void>(context.window("", memory.all())); });
    refused(Code::bad_argument, [&] { static_cast<void>(context.window("none", Slice())); });
    refused(Code::bad_argument, [&] { static_cast<void>(context.window("odd", memory.all().slice(4, 8))); });
    refused(Code::bad_argument, [&] { static_cast<void>(context.target(context.size(), kWindow)); });
    refused(Code::misuse, [] { Target().flush({}); });
    refused(Code::misuse, [] { static_cast<void>(Window().handle()); });
    refused(Code::misuse, [] { static_cast<void>(Window().atomics()); });
    Target target = context.target(context.rank(), kWindow);
    target.wait_connected();
    refused(Code::bad_argument, [&] { target.put({}, memory.all(), 8); });
    refused(Code::bad_argument, [&] { static_cast<void>(target.fetch_add(60, 1)); });
    refused(Code::bad_argument, [&] { static_cast<void>(target.fetch_add(4, 1)); });
    refused(Code::bad_argument, [&] { target.accumulate({}, Op::bit_or, Number::float64, memory.all(), 0); });
    refused(Code::bad_argument, [&] { target.accumulate({}, Op::sum, Number::int32, memory.all().slice(0, 6), 0); });
    refused(Code::timeout, [&] { context.target(context.rank(), "nobody's").wait_connected(1ms); });
    EXPECT_EQ(target.fetch_add(0, 0), word_at(memory.bytes(), 0)) << "it still works";
    EXPECT_NE(window.describe().find("1 target"), std::string::npos) << window.describe();
    const char* const by = window.atomics() == AtomicsBy::processors ? "atomics: by processors" : "by a thread of the";
    EXPECT_NE(window.describe().find(by), std::string::npos) << window.describe();
    EXPECT_NE(window.atomics(), AtomicsBy::gpus);
    target.close();
    refused(Code::misuse, [&] { target.flush({}); });
    expect_within(10s, [&] { return window.describe().find("0 targets") != std::string::npos; });
  });
}

/// Long puts in program order try each way, and `describe` names that of the last one. A shorter one has no choice.
TEST_P(Windows, say_that_puts_go_past_the_cache) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kLeast = base::CrossingCopy::kLeast;
    Side side(context, static_cast<std::size_t>(context.size()) * kLeast, kLeast);
    const std::size_t place = static_cast<std::size_t>(context.rank()) * kLeast;
    side.target.wait_connected();
    const auto says = [&](const char* what) { return side.target.describe().find(what) != std::string::npos; };
    const bool mapped = says("by the stream in the peer's memory") && says("fired by the stream");
    EXPECT_FALSE(says("past the cache"));
    side.target.put({}, side.piece(0, kLeast - 1), place);
    EXPECT_FALSE(says("past the cache"));
    for (std::uint32_t i = 0; i <= 2 * base::CrossingChoice::kRow; ++i)
      side.target.put({}, side.piece(0, kLeast), place);
    EXPECT_EQ(says("past the cache"), mapped && base::crossing_copies_choose) << side.target.describe();
    side.target.flush({});
    board().meet(context);
  });
}

TEST_P(Windows, keep_the_memory_of_accesses_under_way) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kBytes = 8192;
    constexpr std::size_t kPuts = 8;
    const auto ranks = static_cast<std::size_t>(context.size());
    Side side(context, ranks * kPuts * kBytes, kWord);
    const std::size_t first = static_cast<std::size_t>(context.rank()) * kPuts;
    for (std::size_t i = 0; i < kPuts; ++i) {
      const Memory source = context.allocate(kBytes);
      fill({source.data(), kBytes}, {context.rank(), kTag, i});
      side.target.put(side.stream(), source.all(), (first + i) * kBytes);
    }
    for (std::size_t i = 0; i < kPuts; ++i) {
      const Memory other = context.allocate(kBytes);
      poison({other.data(), kBytes});
    }
    side.meet();
    for (std::size_t i = 0; context.rank() == 0 && i < ranks * kPuts; ++i) {
      const auto piece = side.memory.bytes().subspan(i * kBytes, kBytes);
      EXPECT_EQ(difference(piece, {static_cast<Rank>(i / kPuts), kTag, i % kPuts}), "");
    }
    board().meet(context);
  });
}

TEST_P(Windows, of_some_ranks_are_theirs_alone) {
  Case of_three = GetParam();
  of_three.ranks = 3;
  run_peers(of_three.peers(), [](Context& context) {
    constexpr std::size_t kClosed = 10;  // on the board
    const Case& one = GetParam();
    const Buffer memory(context, one, 2 * kWord);
    const Buffer local(context, one, kWord);
    if (context.rank() == 1) return board().meet(context);
    Context some = context.sub({2, 0});
    Window window;
    if (some.rank() == 0) window = some.window(kWindow, memory.all());
    Target target = some.target(0, kWindow);
    target.wait_connected();
    EXPECT_EQ(target.peer(), 0);
    Target none = context.target(2, kWindow);  // another name
    EXPECT_THROW(none.wait_connected(20ms), Error);
    if (some.rank() == 1) {
      set_word(local.bytes(), 0, 12);
      target.put({}, local.all(), kWord);
      target.put({}, local.all().slice(0, 0), 0);
      target.flush({});
      target.close();
      board().set(kClosed, 1);
    } else {
      board().await(kClosed, 1);
      expect_within(10s, [&] { return window.describe().find("1 target;") != std::string::npos; });
      EXPECT_EQ(word_at(memory.bytes(), 1), 12U);
    }
    board().meet(context);
  });
}

TEST_P(Windows, that_are_in_use_are_closed_by_a_later_call) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kMayRun = 10;  // on the board
    const Case& one = GetParam();
    const Buffer memory(context, one, 8 * kWord);
    const Buffer local(context, one, kWord);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.all());
    HostStream host;
    const Stream stream = Stream::host(host);
    Target target = context.target(0, kWindow);
    target.wait_connected();
    if (context.rank() == 1) {
      host.run([&] { board().await(kMayRun, 1); });
      target.put(stream, local.all(), 0);
    }
    board().meet(context);
    if (context.rank() == 0) {
      target.close();
      try {
        window.close(20ms);
        ADD_FAILURE() << "closed while a peer may access it";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::timeout) << error.what();
        EXPECT_NE(std::string(error.what()).find("in use by ranks"), std::string::npos) << error.what();
      }
      EXPECT_THROW(static_cast<void>(context.window(kWindow, memory.all())), Error);
      board().set(kMayRun, 1);
      window.close();
      EXPECT_EQ(unlike_poison(memory.bytes()), "");
      window = context.window(kWindow, memory.all());
    } else {
      EXPECT_THROW(context.synchronize(stream), Error);
    }
    board().meet(context);
  });
}

TEST_P(Windows, that_an_exception_destroys_are_lost) {
  Peers peers = GetParam().peers();
  peers.untold = true;
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    const Buffer memory(context, one, 8 * kWord);
    const Buffer local(context, one, kWord);
    Target target = context.target(0, kWindow);
    try {
      Window window;
      if (context.rank() == 0) window = context.window(kWindow, memory.all());
      target.wait_connected();
      board().meet(context);
      if (context.rank() == 0) throw std::runtime_error("left");
    } catch (const std::runtime_error& error) {
      ASSERT_EQ(std::string(error.what()), "left");
    }
    const auto lost = [&] {
      try {
        target.get({}, local.all(), 0);
        target.flush({});
        return false;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::peer_lost) << error.what();
        return true;
      }
    };
    expect_within(10s, lost);
    board().meet(context);
  });
}

TEST_P(Windows, that_never_come_end_the_waits_of_streams) {
  Peers peers = GetParam().peers();
  peers.untold = true;
  run_peers(peers, [](Context& context) {
    const Buffer local(context, GetParam(), kWord);
    Target target = context.target(0, "nobody's");
    {
      HostStream host;
      target.put(Stream::host(host), local.all(), 0);
      target.flush(Stream::host(host));
    }  // ends the wait
    EXPECT_THROW(target.drain(), Error);
    Target other = context.target(0, "nobody's");
    HostStream host;
    const Stream stream = Stream::host(host);
    other.fetch_add(stream, 0, 1, local.all());
    other.flush(stream);
    board().meet(context);
    if (context.rank() == 0) context.abort("enough");
    try {
      context.synchronize(stream);
      ADD_FAILURE() << "not ended";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::aborted) << error.what();
    }
  });
}

// ---- atomics

class WindowAtomics : public Windows {};

TEST_P(WindowAtomics, give_each_value_once_also_to_the_owner) {
  run_peers(GetParam().peers(), [](Context& context) {
    const std::uint64_t times = GetParam().times(200);
    Side side(context, 4 * kWord, times * kWord);
    if (context.rank() == 0) std::fill(side.memory.bytes().begin(), side.memory.bytes().end(), std::byte{0});
    board().meet(context);
    for (std::uint64_t i = 0; i < times; ++i) {
      if (i == times / 2 && context.rank() == 0) std::this_thread::sleep_for(20ms);  // the owner does nothing
      side.target.fetch_add(side.stream(), kWord, 1, side.piece(i * kWord, kWord));
    }
    side.meet();
    // Each rank has seen a rising sequence; together they have seen each value once.
    for (std::uint64_t i = 1; i < times; ++i)
      EXPECT_LT(word_at(side.local.bytes(), i - 1), word_at(side.local.bytes(), i));
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < times; ++i) sum += word_at(side.local.bytes(), i);
    board().word(kWord).fetch_add(sum);
    board().meet(context);
    const std::uint64_t all = times * static_cast<std::uint64_t>(context.size());
    EXPECT_EQ(board().word(kWord).load(), all * (all - 1) / 2);
    side.target.fetch_add(side.stream(), kWord, 0, side.piece(0, kWord));
    side.flush();
    EXPECT_EQ(word_at(side.local.bytes(), 0), all);
    board().meet(context);
  });
}

TEST_P(WindowAtomics, are_here_after_a_local_flush) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, 2 * kWord, 2 * kWord);
    if (context.rank() == 0) std::fill(side.memory.bytes().begin(), side.memory.bytes().end(), std::byte{0});
    board().meet(context);
    for (std::uint64_t i = 0; i < GetParam().times(40); ++i) {
      set_word(side.local.bytes(), 0, ~std::uint64_t{0});
      set_word(side.local.bytes(), 1, 1);
      side.target.accumulate(side.stream(), Op::sum, Number::uint64, side.piece(kWord, kWord), kWord);
      side.target.flush_local(side.stream());
      side.order.run([&] { set_word(side.local.bytes(), 1, 1000); });  // the numbers have left
      side.target.fetch_add(side.stream(), 0, 1, side.piece(0, kWord));
      side.target.flush_local(side.stream());
      context.synchronize(side.stream());
      EXPECT_LT(word_at(side.local.bytes(), 0), 1000U);
    }
    side.meet();
    const auto all = GetParam().times(40) * static_cast<std::uint64_t>(context.size());
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(side.memory.bytes(), 0), all);
      EXPECT_EQ(word_at(side.memory.bytes(), 1), all);
    }
    board().meet(context);
  });
}

TEST_P(WindowAtomics, make_a_lock) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kLock = 0, kCount = 64;
    const std::uint64_t times = GetParam().times(50) / 2;
    Side side(context, 128, 2 * kWord);
    if (context.rank() == 0) std::fill(side.memory.bytes().begin(), side.memory.bytes().end(), std::byte{0});
    board().meet(context);
    const std::uint64_t me = static_cast<std::uint64_t>(context.rank()) + 1;
    const auto take = [&] {
      side.target.compare_swap(side.stream(), kLock, 0, me, side.piece(0, kWord));
      side.flush();
      return word_at(side.local.bytes(), 0) == 0;
    };
    for (std::uint64_t i = 0; i < times; ++i) {
      while (!take()) std::this_thread::yield();
      side.target.get(side.stream(), side.piece(kWord, kWord), kCount);
      side.flush();
      set_word(side.local.bytes(), 1, word_at(side.local.bytes(), 1) + 1);
      side.target.put(side.stream(), side.piece(kWord, kWord), kCount);
      side.flush();
      side.target.swap(side.stream(), kLock, 0, side.piece(0, kWord));
      side.flush();
      ASSERT_EQ(word_at(side.local.bytes(), 0), me);
    }
    board().meet(context);
    side.target.get(side.stream(), side.piece(0, kWord), kCount);
    side.flush();
    EXPECT_EQ(word_at(side.local.bytes(), 0), times * static_cast<std::uint64_t>(context.size()));
    board().meet(context);
  });
}

template <class T>
void expect_accumulated(Number number) {
  run_peers(WindowAtomics::GetParam().peers(), [number](Context& context) {
    constexpr std::size_t kCount = 1100;  // more than one question to an agent has, of 4 bytes too
    const Case& one = WindowAtomics::GetParam();
    test::Order order(one);
    const Buffer memory(context, one, 4 * kCount * sizeof(T));
    const Buffer local(context, one, kCount * sizeof(T));
    const auto numbers = [](std::span<std::byte> bytes, std::size_t at) {
      return std::span(reinterpret_cast<T*>(bytes.data()) + at, kCount);
    };
    Window window;
    if (context.rank() == 0) {
      std::ranges::fill(numbers(memory.bytes(), 0), T{1});
      std::ranges::fill(numbers(memory.bytes(), kCount), std::numeric_limits<T>::max());
      std::ranges::fill(numbers(memory.bytes(), 2 * kCount), std::numeric_limits<T>::lowest());
      std::ranges::fill(numbers(memory.bytes(), 3 * kCount), T{0});
      window = context.window(kWindow, memory.all());
    }
    Target target = context.target(0, kWindow);
    const auto mine = numbers(local.bytes(), 0);
    for (std::size_t i = 0; i < kCount; ++i)
      mine[i] = static_cast<T>(i * 10 + static_cast<std::size_t>(context.rank()));
    const std::size_t all = kCount * sizeof(T);
    target.accumulate(order.stream(), Op::sum, number, local.all(), 0);
    target.accumulate(order.stream(), Op::min, number, local.all(), all);
    target.accumulate(order.stream(), Op::max, number, local.all(), 2 * all);
    if (context.rank() == 1) target.accumulate(order.stream(), Op::replace, number, local.all(), 3 * all);
    target.flush(order.stream());
    context.synchronize(order.stream());
    board().meet(context);
    for (std::size_t i = 0; context.rank() == 0 && i < kCount; ++i) {
      T sum{1};
      for (int rank = 0; rank < context.size(); ++rank)
        sum = static_cast<T>(sum + static_cast<T>(i * 10) + static_cast<T>(rank));
      EXPECT_EQ(numbers(memory.bytes(), 0)[i], sum) << i;
      EXPECT_EQ(numbers(memory.bytes(), kCount)[i], static_cast<T>(i * 10)) << i;
      EXPECT_EQ(numbers(memory.bytes(), 2 * kCount)[i],
                static_cast<T>(i * 10 + static_cast<std::size_t>(context.size()) - 1))
          << i;
      EXPECT_EQ(numbers(memory.bytes(), 3 * kCount)[i], static_cast<T>(i * 10 + 1)) << i;
    }
    board().meet(context);
  });
}

TEST_P(WindowAtomics, accumulate_whole_numbers) {
  expect_accumulated<std::int32_t>(Number::int32);
  expect_accumulated<std::uint64_t>(Number::uint64);
}
TEST_P(WindowAtomics, accumulate_floating_point_numbers) {
  expect_accumulated<float>(Number::float32);
  expect_accumulated<double>(Number::float64);
}

TEST_P(WindowAtomics, change_single_bits) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, 3 * kWord, kWord);
    if (context.rank() == 0) {
      set_word(side.memory.bytes(), 0, ~std::uint64_t{0});
      set_word(side.memory.bytes(), 1, 0);
      set_word(side.memory.bytes(), 2, 0);
    }
    board().meet(context);
    const auto change = [&](Op op, std::size_t word, std::uint64_t operand) {
      set_word(side.local.bytes(), 0, operand);
      side.target.accumulate(side.stream(), op, Number::uint64, side.piece(0, kWord), word * kWord);
      side.flush();
    };
    const std::uint64_t bit = std::uint64_t{1} << context.rank();
    change(Op::bit_and, 0, ~bit);
    change(Op::bit_or, 1, bit);
    change(Op::bit_xor, 2, bit);
    board().meet(context);
    const std::uint64_t bits = (std::uint64_t{1} << context.size()) - 1;
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(side.memory.bytes(), 0), ~bits);
      EXPECT_EQ(word_at(side.memory.bytes(), 1), bits);
      EXPECT_EQ(word_at(side.memory.bytes(), 2), bits);
    }
    board().meet(context);
  });
}

TEST_P(WindowAtomics, are_done_when_their_target_is_closed) {
  run_peers(GetParam().peers(), [](Context& context) {
    const std::uint64_t times = GetParam().times(40);
    const auto ranks = static_cast<std::uint64_t>(context.size());
    Side side(context, 3 * kWord, 2 * kWord);
    if (context.rank() == 0) std::fill(side.memory.bytes().begin(), side.memory.bytes().end(), std::byte{0});
    board().meet(context);
    set_word(side.local.bytes(), 0, 1);
    for (std::uint64_t i = 0; i < times; ++i) {
      Target target = context.target(0, kWindow);
      target.fetch_add(side.stream(), 0, 1, side.piece(kWord, kWord));
      target.accumulate(side.stream(), Op::sum, Number::uint64, side.piece(0, kWord), kWord);
      if (i % 2 == 0) target.flush(side.stream());
      if (i % 3 == 0) target.close();
    }  // else destroyed, perhaps before the stream has run the atomics
    context.synchronize(side.stream());
    board().meet(context);
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(side.memory.bytes(), 0), times * ranks);
      EXPECT_EQ(word_at(side.memory.bytes(), 1), times * ranks);
    }
    board().meet(context);
  });
}

/// A target that never flushes keeps the memory of those accesses only that are under way.
TEST_P(WindowAtomics, give_the_memory_of_old_operands_back) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr int kTimes = 250;
    constexpr int kUnderWay = 100;  // 64 accesses, and 16 at a thread of the owner, and some
    Side side(context, kWord, kWord);
    std::vector<std::weak_ptr<const detail::Block>> blocks;
    for (int i = 0; i < kTimes; ++i) {
      const Memory one = context.allocate(kWord);
      set_word({one.data(), kWord}, 0, 1);
      blocks.push_back(detail::SliceAccess::block(one.all()));
      side.target.accumulate(side.stream(), Op::sum, Number::uint64, one.all(), 0);
      if (i % 10 == 0) context.synchronize(side.stream());
    }
    const auto kept = std::ranges::count_if(blocks, [](const auto& block) { return !block.expired(); });
    EXPECT_LE(kept, kUnderWay);
    side.meet();
  });
}

TEST_P(WindowAtomics, of_a_closed_target_are_refused) {
  run_peers(GetParam().peers(), [](Context& context) {
    Side side(context, kWord, kWord);
    const Buffer more(context, GetParam(), kWord);
    side.target.wait_connected();
    board().meet(context);
    if (context.rank() == 0) side.window.attach(1024, more.all());
    board().meet(context);
    side.target.fetch_add(side.stream(), 0, 1, side.piece(0, kWord));
    side.meet();
    side.target.close();
    expect_code(Code::misuse, [&] { side.target.drain(); });
    expect_code(Code::misuse, [&] { side.target.flush(side.stream()); });
    expect_code(Code::misuse, [&] { static_cast<void>(side.target.reaches(0, kWord)); });
    expect_code(Code::misuse, [&] { static_cast<void>(side.target.reaches(1024, kWord)); });
    EXPECT_NE(side.target.describe(), "");
    board().meet(context);
  });
}

TEST_P(WindowAtomics, keep_the_memory_of_what_they_return) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kBytes = 8192;
    Side side(context, kBytes, kBytes);
    for (int i = 0; i < 40; ++i) {
      {
        const Memory old = context.allocate(kBytes);
        side.target.fetch_add(side.stream(), 0, 1, old.slice(0, kWord));
      }
      const Memory next = context.allocate(kBytes);
      side.target.get(side.stream(), next.slice(0, kBytes - kWord), kWord);
    }
    side.meet();
  });
}

TEST_P(WindowAtomics, beyond_the_window_fail_also_before_it_is_known) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer memory(context, one, 64);
    const Buffer local(context, one, 64);
    HostStream host;
    const Stream stream = Stream::host(host);
    Target target = context.target(0, kWindow);
    EXPECT_FALSE(target.connected());
    target.fetch_add(stream, 64, 1, local.all().slice(0, kWord));
    target.flush(stream);
    board().meet(context);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.all());
    try {
      context.synchronize(stream);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::misuse) << error.what();
    }
    board().meet(context);
    if (context.rank() == 0) {
      EXPECT_EQ(unlike_poison(memory.bytes()), "");
    }
  });
}

TEST_P(WindowAtomics, return_the_value_before_to_the_host) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer memory(context, one, 64);
    Window window;
    if (context.rank() == 0) {
      set_word(memory.bytes(), 0, 5);
      window = context.window(kWindow, memory.all());
    }
    Target target = context.target(0, kWindow);
    if (context.rank() == 1) {
      EXPECT_EQ(target.swap(0, 7), 5U);
      EXPECT_EQ(target.compare_swap(0, 5, 9), 7U);
      EXPECT_EQ(target.compare_swap(0, 7, 9), 7U);
      EXPECT_EQ(target.fetch_add(0, ~std::uint64_t{0}), 9U);
      target.drain();
      EXPECT_EQ(target.fetch_add(0, 0, 10s), 8U);
      try {  // a limit that is too short changes the word all the same
        static_cast<void>(target.fetch_add(0, 1, 0ns));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::timeout) << error.what();
      }
      target.drain();
      EXPECT_EQ(target.fetch_add(0, 0), 9U);
    }
    board().meet(context);
  });
}

TEST_P(WindowAtomics, of_a_program_in_mapped_memory_are_those_of_targets) {
  run_peers(GetParam().peers(), [](Context& context) {
    const std::size_t times = GetParam().times(200);
    Side side(context, 8 * kWord, times * kWord);
    const Region mapped = side.target.mapped();
    const std::span words(reinterpret_cast<std::uint64_t*>(mapped.data()), mapped.bytes() / kWord);
    const bool by_stores = side.target.describe().find("by the stream in the peer's memory") != std::string::npos &&
                           GetParam().ground.name != "posted";  // its engine fires all
    EXPECT_EQ(!words.empty(), by_stores) << side.target.describe();
    if (context.rank() == 0) set_word(side.memory.bytes(), 2, 0);
    board().meet(context);
    for (std::size_t i = 0; i < times; ++i) {
      if (!words.empty() && i % 2 == 0) {
        std::atomic_ref(words[2]).fetch_add(1);
      } else {
        side.target.fetch_add(side.stream(), 2 * kWord, 1, side.piece(i * kWord, kWord));
      }
    }
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(side.memory.bytes(), 2), times * static_cast<std::size_t>(context.size()));
    }
    side.target.close();
    if (context.rank() == 0) side.window.close();
    board().meet(context);
    if (!words.empty()) {  // the region keeps the memory
      EXPECT_EQ(std::atomic_ref(words[2]).load(), times * static_cast<std::size_t>(context.size()));
    }
    board().meet(context);
  });
}

// ---- ranks that die

class LostWindows : public WithKills {};

TEST_P(LostWindows, end_every_access_and_those_of_others_go_on) {
  Case of_three = GetParam();
  of_three.ranks = 3;
  Peers peers = of_three.peers();
  peers.keep_going = peers.untold = true;
  peers.limit = 60s;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    constexpr std::size_t kMayDie = 11;
    constexpr Rank kOther = 2;  // owns a window too
    test::Order order(one);
    const Buffer memory(context, one, 4096);
    const Buffer local(context, one, 4096);
    Window window;
    if (context.rank() != 1) window = context.window(kWindow, memory.all());
    Target dying = context.target(0, kWindow);
    Target living = context.target(kOther, kWindow);
    dying.wait_connected();
    living.wait_connected();
    if (context.rank() == 0) {
      static_cast<void>(living.fetch_add(0, 1));
      board().await(kMayDie, 2);
      ::raise(SIGKILL);
    }
    dying.fetch_add(order.stream(), 0, 1, local.all().slice(0, kWord));
    dying.flush(order.stream());
    context.synchronize(order.stream());
    board().word(kMayDie).fetch_add(1);
    const auto ends = [&] {
      try {
        dying.get(order.stream(), local.all(), 0);
        dying.flush(order.stream());
        context.synchronize(order.stream());
        return false;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::peer_lost) << error.what();
        return true;
      }
    };
    expect_within(20s, ends);
    for (int i = 0; i < 20; ++i) static_cast<void>(living.fetch_add(kWord, 1));
    dying.close();
    constexpr std::size_t kSurvived = 12;
    board().word(kSurvived).fetch_add(1);
    board().await(kSurvived, 2);
    living.close();
    if (context.rank() == kOther) window.close();
  });
  expect_only_killed(0, ended);
}

INSTANTIATE_IN_ITS_RANKS(Quick, Windows, testing::ValuesIn(of_windows()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, WindowAtomics, testing::ValuesIn(of_windows()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostWindows, testing::ValuesIn(between_processes(of_windows())), CaseName());

}  // namespace
