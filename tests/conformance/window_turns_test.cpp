// SPDX-License-Identifier: Apache-2.0
// Windows whose atomics are those of targets alone: accumulates of many numbers and atomics on single words, by several
// ranks at once.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "tests/conformance/windows.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kMany = 1500;
constexpr std::size_t kManyBytes = kMany * kWord;

/// Words that a rank changes alone, one after another in an order that differs from rank to rank.
std::size_t word_of(Rank rank, std::uint64_t round) {
  return (static_cast<std::size_t>(rank) * 7 + round * 131) % kMany;
}

void fill_words(std::span<std::byte> bytes, std::uint64_t value) {
  for (std::size_t i = 0; i < bytes.size() / kWord; ++i) set_word(bytes, i, value);
}

/// Pages of which the last cannot be read: an accumulate from there ends in the middle.
class HalfReadable {
 public:
  HalfReadable()
      : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        data_(static_cast<std::byte*>(
            ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    fill_words({data_, bytes()}, 1);
  }
  std::size_t bytes() const { return 2 * page_; }
  std::byte* data() const { return data_; }
  void forbid() const { ::mprotect(data_ + page_, page_, PROT_NONE); }
  void allow() const { ::mprotect(data_ + page_, page_, PROT_READ); }

 private:
  std::size_t page_;
  std::byte* data_;
};

// On the board.
constexpr std::size_t kMayGoOn = 10;
constexpr std::size_t kWaitsInTurn = 11;

const HalfReadable* unread = nullptr;

/// Adds the operands to the first words, and stands still in the middle until kMayGoOn: in its turn, if there are
/// turns.
void add_and_stand_still(WindowSide& side, const HalfReadable& operands, const Region& region) {
  unread = &operands;
  ::signal(SIGSEGV, [](int) {
    board().set(kReady, 1);
    while (board().word(kMayGoOn).load() == 0) ::sched_yield();
    unread->allow();
  });
  operands.forbid();
  side.target.accumulate(side.stream(), Op::sum, Number::uint64, region.all(), 0);
  side.flush();
}

class WindowTurns : public testing::TestWithParam<Case> {
 protected:
  static WindowSide side_of(Context& context, std::size_t window_bytes, std::size_t local_bytes) {
    return {context, GetParam(), window_bytes, local_bytes, 1, AtomicsOf::targets};
  }
};

/// A round: all numbers, a few of them, and one by each of the calls for a word.
void change_in_all_ways(WindowSide& side, std::uint64_t round) {
  constexpr std::size_t kFew = 3;
  const std::size_t word = word_of(side.context.rank(), round);
  const std::size_t few = std::min(word, kMany - kFew);
  const Slice old = side.piece(kManyBytes, kWord);
  side.target.accumulate(side.stream(), Op::sum, Number::uint64, side.piece(0, kManyBytes), 0);
  side.target.fetch_add(side.stream(), word * kWord, 1, old);
  side.target.accumulate_notify(side.stream(), Op::sum, Number::uint64, side.piece(0, kFew * kWord), few * kWord, 0);
  std::uint64_t expected = 0;
  do {
    side.target.fetch_add(side.stream(), word * kWord, 0, old);
    side.flush();
    expected = word_at(side.local.bytes(), kMany);
    side.target.compare_swap(side.stream(), word * kWord, expected, expected + 1, old);
    side.flush();
  } while (word_at(side.local.bytes(), kMany) != expected);
}

std::vector<std::uint64_t> sums_after(std::uint64_t rounds, Rank ranks) {
  constexpr std::size_t kFew = 3;
  std::vector<std::uint64_t> sums(kMany, rounds * static_cast<std::uint64_t>(ranks));
  for (Rank rank = 0; rank < ranks; ++rank) {
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::size_t word = word_of(rank, round);
      const std::size_t few = std::min(word, kMany - kFew);
      sums[word] += 2;
      for (std::size_t i = 0; i < kFew; ++i) ++sums[few + i];
    }
  }
  return sums;
}

TEST_P(WindowTurns, lose_no_change_of_any_kind) {
  Case three = GetParam();
  three.ranks = 3;
  Peers peers = three.peers();
  peers.limit = 60s;
  run_peers(peers, [](Context& context) {
    const std::uint64_t rounds = GetParam().ground.slow ? 10 : 300;
    WindowSide side = side_of(context, kManyBytes, kManyBytes + kWord);
    fill_words(side.local.bytes(), 1);
    if (context.rank() == 0) fill_words(side.memory.bytes(), 0);
    board().meet(context);
    for (std::uint64_t round = 0; round < rounds; ++round) change_in_all_ways(side, round);
    side.meet();
    if (context.rank() == 0) {
      const std::vector<std::uint64_t> sums = sums_after(rounds, context.size());
      for (std::size_t i = 0; i < kMany; ++i) ASSERT_EQ(word_at(side.memory.bytes(), i), sums[i]) << "number " << i;
      EXPECT_EQ(side.window.count(0), rounds * static_cast<std::uint64_t>(context.size()));
    }
    board().meet(context);
  });
}

/// One rank adds to all numbers, and the other to the first of them, as fast as they can.
TEST_P(WindowTurns, lose_no_change_of_one_word) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kFew = 8;
    const std::uint64_t rounds = GetParam().ground.slow ? 20 : 20'000;
    WindowSide side = side_of(context, kManyBytes, kManyBytes + kWord);
    fill_words(side.local.bytes(), 1);
    if (context.rank() == 0) fill_words(side.memory.bytes(), 0);
    board().meet(context);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      if (context.rank() == 0) {
        side.target.accumulate(side.stream(), Op::sum, Number::uint64, side.piece(0, kFew * kWord), 0);
      } else {
        side.target.fetch_add(side.stream(), 0, 1, side.piece(kManyBytes, kWord));
      }
    }
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(side.memory.bytes(), 0), 2 * rounds);
    }
    board().meet(context);
  });
}

TEST_P(WindowTurns, change_each_number_as_instructions_do) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kOdd = 37;
    WindowSide side = side_of(context, 2 * kManyBytes, kManyBytes);
    if (context.rank() == 0) {
      const std::string& ground = GetParam().ground.name;
      const bool all_map = ground == "threads" || (ground == "shm" && !GetParam().user);
      EXPECT_NE(side.window.atomics(), AtomicsBy::processors);
      if (all_map) {
        EXPECT_EQ(side.window.atomics(), AtomicsBy::turns);
      }
      for (std::size_t i = 0; i < 2 * kMany; ++i) set_word(side.memory.bytes(), i, i);
    }
    board().meet(context);
    if (context.rank() == 1) {
      for (std::size_t i = 0; i < kMany; ++i) set_word(side.local.bytes(), i, (i * 40503) % 2000);
      const Slice numbers = side.piece(0, kOdd * kWord);
      std::size_t at = kWord;
      for (const Op op : {Op::sum, Op::min, Op::max, Op::replace, Op::bit_and, Op::bit_or, Op::bit_xor}) {
        side.target.accumulate(side.stream(), op, Number::uint64, numbers, at);
        at += 2 * kOdd * kWord;
      }
      side.flush();
    }
    board().meet(context);
    if (context.rank() == 0) {
      std::vector<std::uint64_t> expected(2 * kMany);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = i;
      std::size_t at = 1;
      for (const Op op : {Op::sum, Op::min, Op::max, Op::replace, Op::bit_and, Op::bit_or, Op::bit_xor}) {
        for (std::size_t i = 0; i < kOdd; ++i) {
          std::uint64_t& there = expected[at + i];
          const std::uint64_t operand = (i * 40503) % 2000;
          switch (op) {
            case Op::sum: there += operand; break;
            case Op::min: there = std::min(there, operand); break;
            case Op::max: there = std::max(there, operand); break;
            case Op::bit_and: there &= operand; break;
            case Op::bit_or: there |= operand; break;
            case Op::bit_xor: there ^= operand; break;
            default: there = operand;
          }
        }
        at += 2 * kOdd;
      }
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(word_at(side.memory.bytes(), i), expected[i]) << "number " << i;
    }
    board().meet(context);
  });
}

TEST_P(WindowTurns, take_several_for_very_many_numbers) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::size_t kVeryMany = 20'001;
    WindowSide side = side_of(context, kVeryMany * kWord, kVeryMany * kWord);
    for (std::size_t i = 0; i < kVeryMany; ++i) set_word(side.local.bytes(), i, i);
    if (context.rank() == 0) fill_words(side.memory.bytes(), 1);
    board().meet(context);
    side.target.accumulate(side.stream(), Op::sum, Number::uint64, side.piece(0, kVeryMany * kWord), 0);
    side.meet();
    for (std::size_t i = 0; context.rank() == 0 && i < kVeryMany; ++i)
      ASSERT_EQ(word_at(side.memory.bytes(), i), 1 + i * static_cast<std::uint64_t>(context.size())) << "number " << i;
    board().meet(context);
  });
}

TEST_P(WindowTurns, have_no_counter_more) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const Buffer memory(context, one, 64);
    HostStream host;
    const Stream stream = Stream::host(host);
    Target target = context.target(0, kWindow);
    target.notify(stream, 1);
    board().meet(context);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.all(), 1, AtomicsOf::targets);
    try {
      target.flush(stream);
      context.synchronize(stream);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::misuse) << error.what();
    }
    board().meet(context);
    if (context.rank() == 0) {
      Target other = context.target(0, kWindow);
      EXPECT_EQ(other.fetch_add(0, 0, 10s), word_at(memory.bytes(), 0));
    }
    board().meet(context);
  });
}

/// Numbers of a type in an array at `offset`, which ranks change: sums, and behind them the greatest.
template <class T>
class Changed {
 public:
  static constexpr std::size_t kBytes = 2 * kMany * sizeof(T);

  Changed(Number number, std::size_t offset) : number_(number), offset_(offset) {}

  void fill(std::span<std::byte> bytes) const { std::ranges::fill(numbers(bytes, 2 * kMany), T{0}); }
  void fill_operands(std::span<std::byte> bytes, Rank rank) const {
    for (std::size_t i = 0; i < kMany; ++i) numbers(bytes, kMany)[i] = operand(i, rank);
  }
  void change(WindowSide& side) const {
    const Slice operands = side.piece(offset_, kMany * sizeof(T));
    side.target.accumulate(side.stream(), Op::sum, number_, operands, offset_);
    side.target.accumulate(side.stream(), Op::max, number_, operands, offset_ + kMany * sizeof(T));
  }
  void expect(std::span<std::byte> bytes, std::uint64_t rounds, Rank ranks) const {
    const auto found = numbers(bytes, 2 * kMany);
    for (std::size_t i = 0; i < kMany; ++i) {
      T sum{0};
      for (Rank rank = 0; rank < ranks; ++rank) sum = static_cast<T>(sum + static_cast<T>(rounds) * operand(i, rank));
      ASSERT_EQ(found[i], sum) << "number " << i << " from byte " << offset_;
      ASSERT_EQ(found[kMany + i], operand(i, ranks - 1)) << "number " << i << " from byte " << offset_;
    }
  }

 private:
  /// A floating-point number is a multiple of a quarter, so that sums are exact in any order.
  static T operand(std::size_t i, Rank rank) {
    const auto whole = static_cast<T>(static_cast<T>(i % 7) + static_cast<T>(1 + rank));
    return std::is_floating_point_v<T> ? static_cast<T>(whole / T{4}) : whole;
  }
  std::span<T> numbers(std::span<std::byte> bytes, std::size_t count) const {
    return {reinterpret_cast<T*>(bytes.data() + offset_), count};
  }

  Number number_;
  std::size_t offset_;
};

TEST_P(WindowTurns, lose_no_change_of_numbers_of_any_type) {
  Case three = GetParam();
  three.ranks = 3;
  run_peers(three.peers(), [](Context& context) {
    const std::uint64_t rounds = GetParam().ground.slow ? 5 : 100;
    // Each begins 4 bytes from a multiple of 8 where its numbers allow that.
    const Changed<std::int32_t> int32(Number::int32, 4);
    const Changed<float> float32(Number::float32, 4 + int32.kBytes);
    const std::size_t of_8_bytes = 8 + int32.kBytes + float32.kBytes;
    const Changed<std::int64_t> int64(Number::int64, of_8_bytes);
    const Changed<double> float64(Number::float64, of_8_bytes + int64.kBytes);
    const auto each = [&](auto call) {
      call(int32);
      call(float32);
      call(int64);
      call(float64);
    };
    const std::size_t all = of_8_bytes + int64.kBytes + float64.kBytes;
    WindowSide side = side_of(context, all, all);
    each([&](const auto& changed) {
      changed.fill_operands(side.local.bytes(), context.rank());
      if (context.rank() == 0) changed.fill(side.memory.bytes());
    });
    board().meet(context);
    for (std::uint64_t round = 0; round < rounds; ++round) each([&](const auto& changed) { changed.change(side); });
    side.meet();
    if (context.rank() == 0)
      each([&](const auto& changed) { changed.expect(side.memory.bytes(), rounds, context.size()); });
    board().meet(context);
  });
}

/// Threads of a rank have its turns one after another too.
TEST_P(WindowTurns, lose_no_change_by_several_threads_of_a_rank) {
  run_peers(GetParam().peers(), [](Context& context) {
    constexpr std::uint64_t kThreads = 3;
    const std::uint64_t rounds = GetParam().ground.slow ? 10 : 300;
    const Buffer memory(context, GetParam(), kManyBytes);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.all(), 0, AtomicsOf::targets);
    struct Thread {
      explicit Thread(Context& in)
          : order(GetParam()), local(in, GetParam(), kManyBytes + kWord), target(in.target(0, kWindow)) {
        fill_words(local.bytes(), 1);
      }
      test::Order order;
      Buffer local;
      Target target;
    };
    std::vector<std::unique_ptr<Thread>> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) threads.push_back(std::make_unique<Thread>(context));
    if (context.rank() == 0) fill_words(memory.bytes(), 0);
    board().meet(context);
    {
      std::vector<std::jthread> running;
      for (const auto& thread : threads) {
        running.emplace_back([&context, rounds, &one = *thread] {
          const Slice operands = one.local.all().slice(0, kManyBytes);
          const Slice old = one.local.all().slice(kManyBytes, kWord);
          for (std::uint64_t round = 0; round < rounds; ++round) {
            one.target.accumulate(one.order.stream(), Op::sum, Number::uint64, operands, 0);
            one.target.fetch_add(one.order.stream(), word_of(context.rank(), round) * kWord, 1, old);
          }
          one.target.flush(one.order.stream());
          context.synchronize(one.order.stream());
        });
      }
    }
    board().meet(context);
    if (context.rank() == 0) {
      std::vector<std::uint64_t> sums(kMany, rounds * kThreads * static_cast<std::uint64_t>(context.size()));
      for (Rank rank = 0; rank < context.size(); ++rank) {
        for (std::uint64_t round = 0; round < rounds; ++round) sums[word_of(rank, round)] += kThreads;
      }
      for (std::size_t i = 0; i < kMany; ++i) ASSERT_EQ(word_at(memory.bytes(), i), sums[i]) << "number " << i;
    }
    board().meet(context);
  });
}

// ---- waits that end

/// One rank stands still in its turn while another waits for one.
TEST_P(WindowTurns, are_awaited_within_the_limits_of_calls_and_of_streams) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    const HalfReadable operands;
    const Region region = context.region(operands.data(), operands.bytes());
    WindowSide side = side_of(context, operands.bytes(), kWord);
    const Memory memory = context.allocate(kWord);
    const Slice one = memory.all();
    one.as<std::uint64_t>()[0] = 1;
    if (context.rank() == 0) fill_words(side.memory.bytes(), 0);
    side.target.wait_connected();
    board().meet(context);
    if (context.rank() == 1) add_and_stand_still(side, operands, region);
    if (context.rank() == 0) {
      board().await(kReady, 1);
      const std::string how = side.target.describe();
      const bool in_turns = how.find("the processors of one rank at a time") != std::string::npos &&
                            how.find("fired by the stream") != std::string::npos;
      const auto ends = [&](Code code, auto call) {
        Target target = context.target(0, kWindow);
        target.wait_connected();
        if (in_turns) expect_code(code, [&] { call(target); });
      };
      ends(Code::timeout, [](Target& target) { static_cast<void>(target.fetch_add(0, 1, 5ms)); });
      HostStream host({.timeout = 5ms});
      ends(Code::timeout, [&](Target& target) {
        target.accumulate(Stream::host(host), Op::sum, Number::uint64, one, 0);
        context.synchronize(Stream::host(host));
      });
      std::optional<HostStream> ended(std::in_place);
      ends(Code::aborted, [&](Target& target) {
        target.fetch_add(Stream::host(*ended), 0, 1, one);
        ended.reset();
        context.check();
      });
      board().set(kMayGoOn, 1);
    }
    side.meet();
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(side.memory.bytes(), 0), 1U);
    }
  });
}

// ---- owners that leave

/// One rank stands still in its turn while another waits for one and the owner closes the window.
TEST_P(WindowTurns, complete_or_are_refused_when_their_window_is_closed) {
  Case of_three = GetParam();
  of_three.ranks = 3;
  run_peers(with_untold(of_three.peers()), [](Context& context) {
    constexpr std::size_t kCompleted = 12;  // on the board
    const HalfReadable operands;
    const Region region = context.region(operands.data(), operands.bytes());
    WindowSide side = side_of(context, operands.bytes(), kWord);
    side.target.wait_connected();
    const bool in_turns = side.target.describe().find("the processors of one rank at a time") != std::string::npos;
    if (context.rank() == 0) fill_words(side.memory.bytes(), 0);
    board().meet(context);
    const auto completes = [&](auto change) {
      try {
        change();
        board().word(kCompleted).fetch_add(1);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::closed) << error.what();
      }
    };
    if (context.rank() == 0) {
      side.target.close();
      board().await(kWaitsInTurn, 1);
      try {
        side.window.close(20ms);
        EXPECT_FALSE(in_turns) << "closed in the turn of a peer";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::timeout) << error.what();
      }
      board().set(kMayGoOn, 1);
      side.window.close();
    } else if (context.rank() == 1) {
      completes([&] { add_and_stand_still(side, operands, region); });
    } else {
      board().await(kReady, 1);
      board().set(kWaitsInTurn, 1);
      completes([&] {
        side.target.fetch_add(side.stream(), 0, 1, side.piece(0, kWord));
        side.flush();
      });
    }
    board().meet(context);
    if (context.rank() == 0) {
      const std::uint64_t completed = board().word(kCompleted).load();
      EXPECT_GE(word_at(side.memory.bytes(), 0), completed);
      EXPECT_LE(word_at(side.memory.bytes(), 0), 2U);
    } else {
      expect_code(Code::closed, [&] {
        side.target.fetch_add(side.stream(), 0, 1, side.piece(0, kWord));
        side.flush();
      });
    }
    board().meet(context);
  });
}

// ---- ranks that die

class LostTurns : public WithKills {};

TEST_P(LostTurns, are_those_of_others_then) {
  Case of_three = GetParam();
  of_three.ranks = 3;
  Peers peers = of_three.peers();
  peers.keep_going = peers.untold = true;
  peers.limit = 60s;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    constexpr Rank kDies = 1;
    constexpr std::size_t kSurvived = 12;
    HalfReadable operands;
    const Region region = context.region(operands.data(), operands.bytes());
    const WindowSide own(context, GetParam(), operands.bytes(), kWord, 0, AtomicsOf::targets);
    Target target = context.target(0, kWindow);
    target.wait_connected();
    if (context.rank() == 0) fill_words(own.memory.bytes(), 0);
    board().meet(context);
    if (context.rank() == kDies) {
      ::signal(SIGSEGV, [](int) {
        board().set(kReady, 1);
        ::raise(SIGKILL);
      });
      operands.forbid();
      target.accumulate({}, Op::sum, Number::uint64, region.all(), 0);
      target.flush({});
      ADD_FAILURE() << "the numbers could be read";
      return;
    }
    board().await(kReady, 1);  // it is the turn of the rank that dies
    constexpr std::uint64_t kTimes = 50;
    for (std::uint64_t i = 0; i < kTimes; ++i) {
      target.accumulate({}, Op::sum, Number::uint64, region.all(), 0);
      static_cast<void>(target.fetch_add(0, 1));
    }
    target.flush({});
    board().word(kSurvived).fetch_add(1);
    board().await(kSurvived, 2);
    if (context.rank() == 0) {
      const std::size_t last = operands.bytes() / kWord - 1;
      EXPECT_GE(word_at(own.memory.bytes(), 0), 4 * kTimes);
      EXPECT_LE(word_at(own.memory.bytes(), 0), 4 * kTimes + 1);
      EXPECT_EQ(word_at(own.memory.bytes(), last), 2 * kTimes);
    }
    target.close();
  });
  expect_only_killed(1, ended);
}

/// One rank stands still in its turn while another waits for one and the owner dies.
TEST_P(LostTurns, end_with_the_owner) {
  Case of_three = GetParam();
  of_three.ranks = 3;
  Peers peers = of_three.peers();
  peers.keep_going = peers.untold = true;
  peers.limit = 60s;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const HalfReadable operands;
    const Region region = context.region(operands.data(), operands.bytes());
    WindowSide side(context, GetParam(), operands.bytes(), kWord, 0, AtomicsOf::targets);
    side.target.wait_connected();
    board().meet(context);
    const auto change = [&] {
      side.target.fetch_add(side.stream(), 0, 1, side.piece(0, kWord));
      side.flush();
    };
    const auto ends = [&](auto call) {
      try {
        call();
        return false;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::peer_lost) << error.what();
        return true;
      }
    };
    if (context.rank() == 0) {
      board().await(kWaitsInTurn, 1);
      die();
    }
    if (context.rank() == 1) {
      if (!ends([&] { add_and_stand_still(side, operands, region); }))
        expect_within(kNoticed, [&] { return ends(change); });
    } else {
      board().await(kReady, 1);
      board().set(kWaitsInTurn, 1);
      expect_within(kNoticed, [&] { return ends(change); });
      board().set(kMayGoOn, 1);
    }
    side.target.close();
  });
  expect_only_killed(0, ended);
}

INSTANTIATE_IN_ITS_RANKS(Quick, WindowTurns, testing::ValuesIn(of_windows()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostTurns, testing::ValuesIn(between_processes(of_windows())), CaseName());

}  // namespace
