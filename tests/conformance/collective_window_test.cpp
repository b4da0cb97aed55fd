// SPDX-License-Identifier: Apache-2.0
// Windows on every rank, and their epochs: fence, post and start, locks.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/cases.hpp"
#include "tests/conformance/random_seed.hpp"
#include "tests/faults/killed.hpp"
#include "tests/faults/wrapped.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using Lock = CollectiveWindow::Lock;

constexpr std::size_t kBytesOfWord = sizeof(std::uint64_t);
constexpr const char* kWindow = "all";

std::uint64_t& word_of(const Buffer& buffer, std::size_t index) {
  return *reinterpret_cast<std::uint64_t*>(buffer.bytes().data() + index * kBytesOfWord);
}

std::vector<Rank> all_ranks(const Context& context) {
  std::vector<Rank> ranks(static_cast<std::size_t>(context.size()));
  for (Rank rank = 0; rank < context.size(); ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
  return ranks;
}

/// A rank's part of a window, and memory for its accesses.
struct WindowPart {
  WindowPart(Context& in, const Case& one, std::size_t window_bytes, std::size_t local_bytes)
      : context(in), order(one), memory(in, one, std::max(window_bytes, kBytesOfWord)),
        local(in, one, std::max(local_bytes, kBytesOfWord)),
        window(in, kWindow, window_bytes == 0 ? Slice() : memory.all().slice(0, window_bytes)) {
    std::memset(memory.bytes().data(), 0, memory.bytes().size());
    window.fence();
  }
  std::size_t rank() const { return static_cast<std::size_t>(context.rank()); }
  std::size_t size() const { return static_cast<std::size_t>(context.size()); }
  void put(Rank to, std::size_t from, std::size_t bytes, std::size_t at) {
    window.target(to).put(order.stream(), local.all().slice(from, bytes), at);
  }
  void get(Rank of, std::size_t into, std::size_t bytes, std::size_t at) {
    window.target(of).get(order.stream(), local.all().slice(into, bytes), at);
  }

  Context& context;
  test::Order order;  // before what it uses: destroyed last
  Buffer memory;
  Buffer local;
  CollectiveWindow window;
};

class CollectiveCases : public testing::TestWithParam<Case> {
 protected:
  /// So many times by all ranks together, or less over a network.
  static std::uint64_t times(std::uint64_t usual, std::size_t ranks) {
    return (GetParam().ground.network ? std::min<std::uint64_t>(usual, 30) : usual) / ranks + 3;
  }
  static Peers peers() {
    Peers peers = GetParam().peers();
    peers.limit = 60s;
    return peers;
  }
};

// ---- fence

class Fences : public CollectiveCases {};

TEST_P(Fences, separate_what_all_put_before_from_what_they_put_after) {
  run_peers(peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr std::size_t kPiece = 1001;
    constexpr std::size_t kStride = 1008;
    const auto ranks = static_cast<std::size_t>(context.size());
    WindowPart part(context, one, ranks * kStride, ranks * kPiece);
    for (std::uint64_t round = 1; round <= times(30, ranks); ++round) {
      for (const Rank to : all_ranks(context)) {
        const auto source = part.local.bytes().subspan(static_cast<std::size_t>(to) * kPiece, kPiece);
        fill(source, {context.rank(), static_cast<Tag>(to), round});
        part.put(to, static_cast<std::size_t>(to) * kPiece, kPiece, part.rank() * kStride);
      }
      part.window.fence();
      for (const Rank from : all_ranks(context)) {
        const auto piece = part.memory.bytes().subspan(static_cast<std::size_t>(from) * kStride, kPiece);
        ASSERT_EQ(difference(piece, {from, static_cast<Tag>(context.rank()), round}), "") << "of rank " << from;
        poison(piece);
      }
      part.window.fence();
    }
    part.window.close();
  });
}

TEST_P(Fences, let_no_rank_pass_before_all_have_come) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kCome = 10;  // on the board
    WindowPart part(context, GetParam(), 64, 64);
    const auto ranks = static_cast<std::uint64_t>(context.size());
    for (std::uint64_t round = 1; round <= times(200, ranks); ++round) {
      board().word(kCome).fetch_add(1);
      part.window.fence();
      ASSERT_GE(board().word(kCome).load(), round * ranks);
      ASSERT_LE(board().word(kCome).load(), (round + 1) * ranks);
    }
  });
}

/// Signals are channels whose credits go back together.
TEST_P(Fences, may_outnumber_the_credits_of_their_signals) {
  run_peers(peers(), [](Context& context) {
    constexpr std::uint64_t kCredits = 64;
    constexpr std::size_t kCome = 10;  // on the board
    WindowPart part(context, GetParam(), 64, 64);
    const auto ranks = static_cast<std::uint64_t>(context.size());
    for (std::uint64_t round = 1; round <= 2 * kCredits + 1; ++round) {
      board().word(kCome).fetch_add(1);
      part.window.fence();
      ASSERT_GE(board().word(kCome).load(), round * ranks);
    }
  });
}

TEST_P(Fences, that_run_out_of_time_go_on_when_called_again) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kHasTried = 10;  // on the board
    WindowPart part(context, GetParam(), 64, 64);
    const bool last = context.rank() == context.size() - 1;
    const auto others = static_cast<std::uint64_t>(context.size()) - 1;
    for (std::uint64_t round = 1; round <= 3; ++round) {
      if (last) {
        board().await(kHasTried, round * others);
      } else {
        expect_code(Code::timeout, [&] { part.window.fence(round == 1 ? 0ms : 5ms); });
        board().word(kHasTried).fetch_add(1);
      }
      part.window.fence();
      board().meet(context);
    }
    expect_code(Code::timeout, [&] {
      if (!last || others == 0) throw Error(Code::timeout, 0, 0, 0, 0, "not this rank");
      part.window.close(5ms);
    });
    board().meet(context);
    part.window.close();
    part.window.close();
    expect_code(Code::misuse, [&] { part.window.fence(); });
  });
}

// ---- post, start, complete, wait

class Posts : public CollectiveCases {};

/// The edges of a round, from origins to targets, the same at all ranks.
std::vector<std::vector<bool>> draw_edges(std::mt19937& random, std::size_t ranks) {
  std::vector<std::vector<bool>> edges(ranks, std::vector<bool>(ranks));
  const auto density = random() % 4;  // of 3
  for (auto& row : edges)
    for (std::size_t to = 0; to < ranks; ++to) row[to] = random() % 3 < density;
  return edges;
}

TEST_P(Posts, give_random_groups_what_an_oracle_says) {
  run_peers(peers(), [](Context& context) {
    const Case& one = GetParam();
    const auto ranks = static_cast<std::size_t>(context.size());
    WindowPart part(context, one, ranks * 128, ranks * 128);
    std::mt19937 shared(20261128);  // the same at all ranks
    std::mt19937 random(static_cast<unsigned>(context.rank()));
    for (std::uint64_t round = 1; round <= times(100, 1); ++round) {
      const auto edges = draw_edges(shared, ranks);
      std::vector<Rank> origins;
      std::vector<Rank> targets;
      for (const Rank other : all_ranks(context)) {
        if (edges[static_cast<std::size_t>(other)][part.rank()]) origins.push_back(other);
        if (edges[part.rank()][static_cast<std::size_t>(other)]) targets.push_back(other);
      }
      std::shuffle(origins.begin(), origins.end(), random);
      std::shuffle(targets.begin(), targets.end(), random);
      poison(part.memory.bytes());
      part.window.post(origins);
      part.window.start(targets);
      for (const Rank to : targets) {
        const std::size_t from = static_cast<std::size_t>(to) * 128;
        fill(part.local.bytes().subspan(from, 121), {context.rank(), static_cast<Tag>(to), round});
        part.put(to, from, 121, part.rank() * 128);
      }
      part.window.complete();
      if (random() % 2 == 0) {
        expect_within(20s, [&] { return part.window.test(); });
      } else {
        part.window.wait();
      }
      for (const Rank from : all_ranks(context)) {
        const auto piece = part.memory.bytes().subspan(static_cast<std::size_t>(from) * 128, 121);
        const bool puts = std::ranges::find(origins, from) != origins.end();
        ASSERT_EQ(puts ? difference(piece, {from, static_cast<Tag>(context.rank()), round}) : unlike_poison(piece), "")
            << "round " << round << ", of rank " << from;
      }
    }
    part.window.close();
  });
}

TEST_P(Posts, wait_for_no_origin) {
  run_peers(peers(), [](Context& context) {
    WindowPart part(context, GetParam(), 64, 64);
    const std::vector<Rank> all = all_ranks(context);
    for (int round = 0; round < 3; ++round) {
      part.window.post(all);
      board().meet(context);  // where a post that waits for `start` would hang
      EXPECT_FALSE(part.window.test());
      board().meet(context);
      part.window.start(all);
      part.window.complete();
      part.window.wait();
    }
  });
}

TEST_P(Posts, hold_up_start_and_completes_hold_up_wait) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kPosted = 10;  // on the board
    constexpr std::size_t kCompleted = 11;
    constexpr std::size_t kHasTried = 12;
    constexpr std::size_t kWaited = 13;
    WindowPart part(context, GetParam(), 64, 64);
    const std::vector<Rank> origin{0};
    const std::vector<Rank> target{context.size() - 1};
    if (context.size() % 2 == 0) static_cast<void>(part.window.target(target[0]));  // else `start` connects first
    if (context.size() == 1) {
      expect_code(Code::timeout, [&] { part.window.start(target, 5ms); });
      part.window.post(origin);
      expect_code(Code::timeout, [&] { part.window.wait(5ms); });
      part.window.start(target);
      EXPECT_FALSE(part.window.test());
      part.window.complete();
      return part.window.wait();
    }
    for (std::uint64_t round = 1; round <= 4; ++round) {
      const Timeout brief = round == 1 ? 0ms : 5ms;
      if (context.rank() == target.front()) {
        board().await(kHasTried, round);
        if (round % 2 == 0) part.window.post({});
        if (round % 2 == 0) part.window.wait();
        board().word(kPosted).fetch_add(1);
        part.window.post(origin);
        expect_code(Code::timeout, [&] { part.window.wait(brief); });
        EXPECT_FALSE(part.window.test());
        board().set(kWaited, round);
        part.window.wait();
        EXPECT_GE(board().word(kCompleted).load(), round);
      } else if (context.rank() == 0) {
        expect_code(Code::timeout, [&] { part.window.start(target, brief); });
        expect_code(Code::misuse, [&] { part.window.complete(); });
        board().set(kHasTried, round);
        part.window.start(target);
        EXPECT_GE(board().word(kPosted).load(), round);
        board().await(kWaited, round);
        board().word(kCompleted).fetch_add(1);
        part.window.complete();
      }
    }
    part.window.close();
  });
}

TEST_P(Posts, that_ran_out_of_time_are_not_lost) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kHasTimedOut = 10;  // on the board
    WindowPart part(context, GetParam(), 64, 64);
    const std::vector<Rank> origin{0};
    std::vector<Rank> targets = all_ranks(context);
    const Rank last = targets.back();
    for (std::uint64_t round = 1; round <= 3; ++round) {
      if (context.rank() == last && last != 0) board().await(kHasTimedOut, round);
      part.window.post(origin);
      if (context.rank() == 0) {
        // All but the last have posted, or will soon.
        if (last != 0) expect_code(Code::timeout, [&] { part.window.start(targets, 100ms); });
        board().set(kHasTimedOut, round);
        std::ranges::reverse(targets);
        part.window.start(targets);
        part.window.complete();
        std::ranges::reverse(targets);
      }
      part.window.wait();
    }
    part.window.close();
  });
}

// ---- locks

class WindowLocks : public CollectiveCases {};

TEST_P(WindowLocks, exclude_each_other) {
  run_peers(peers(), [](Context& context) {
    const Case& one = GetParam();
    WindowPart part(context, one, 2 * kBytesOfWord, 2 * kBytesOfWord);
    const std::uint64_t count = times(300, part.size());
    std::mt19937 random(static_cast<unsigned>(20261128 + context.rank()));
    std::vector<std::uint64_t> added(part.size());
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto at = static_cast<Rank>(random() % part.size());
      part.window.lock(at, Lock::exclusive);
      part.get(at, 0, kBytesOfWord, 0);
      part.window.flush(at);
      ++word_of(part.local, 0);
      part.put(at, 0, kBytesOfWord, 0);
      part.window.unlock(at);
      ++added[static_cast<std::size_t>(at)];
    }
    for (std::size_t at = 0; at < part.size(); ++at) board().word(10 + at).fetch_add(added[at]);
    part.window.fence();
    EXPECT_EQ(word_of(part.memory, 0), board().word(10 + part.rank()).load());
    part.window.close();
  });
}

TEST_P(WindowLocks, that_are_shared_admit_all_at_once) {
  run_peers(peers(), [](Context& context) {
    WindowPart part(context, GetParam(), 64, 64);
    std::vector<Rank> order = all_ranks(context);
    for (std::uint64_t round = 1; round <= 3; ++round) {
      std::ranges::reverse(order);
      for (const Rank at : order) part.window.lock(at, Lock::shared);
      board().meet(context);  // all ranks have locked all
      expect_code(Code::misuse, [&] { part.window.lock(0, Lock::shared); });
      for (const Rank at : all_ranks(context)) part.window.unlock(at);
      part.window.lock_all();
      board().meet(context);
      part.window.unlock_all();
    }
  });
}

TEST_P(WindowLocks, that_are_shared_see_no_half_of_what_an_exclusive_one_writes) {
  run_peers(peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr std::size_t kBytes = 2048;
    WindowPart part(context, one, kBytes, kBytes);
    const Rank at = context.size() / 2;
    const auto write = [&](std::uint64_t what) {
      std::fill_n(&word_of(part.local, 0), kBytes / kBytesOfWord, what);
      part.put(at, 0, kBytes / 2, 0);
      part.window.flush(at);
      part.put(at, kBytes / 2, kBytes / 2, kBytes / 2);
    };
    const auto read = [&] {
      part.get(at, 0, kBytes, 0);
      part.window.flush(at);
      for (std::size_t i = 1; i < kBytes / kBytesOfWord; ++i)
        ASSERT_EQ(word_of(part.local, i), word_of(part.local, 0)) << "word " << i;
    };
    std::mt19937 random(static_cast<unsigned>(20261128 + context.rank()));
    for (std::uint64_t i = 1; i <= times(200, part.size()); ++i) {
      switch (random() % 3) {
        case 0:
          part.window.lock(at, Lock::exclusive);
          write(i * 64 + part.rank());
          part.window.unlock(at);
          break;
        case 1:
          part.window.lock(at, Lock::shared);
          read();
          part.window.unlock(at);
          break;
        default:
          part.window.lock_all();
          read();
          part.window.unlock_all();
      }
    }
    part.window.fence();
  });
}

TEST_P(WindowLocks, that_time_out_leave_nothing_locked) {
  run_peers(peers(), [](Context& context) {
    WindowPart part(context, GetParam(), 64, 64);
    const Rank at = context.size() - 1;
    if (context.size() == 1) return;
    const auto try_all = [&](const std::vector<bool>& works) {
      board().meet(context);
      const auto attempt = [&](bool may, const auto& lock, const auto& unlock) {
        if (may) {
          lock(10s);
          unlock();
        } else {
          expect_code(Code::timeout, [&] { lock(20ms); });
          expect_code(Code::misuse, unlock);
        }
      };
      if (context.rank() == 1) {
        const auto unlock = [&] { part.window.unlock(at); };
        attempt(
            works[0], [&](Timeout in) { part.window.lock(at, Lock::exclusive, in); }, unlock);
        attempt(
            works[1], [&](Timeout in) { part.window.lock(at, Lock::shared, in); }, unlock);
        attempt(
            works[2], [&](Timeout in) { part.window.lock_all(in); }, [&] { part.window.unlock_all(); });
      }
      board().meet(context);
    };
    const bool holder = context.rank() == 0;
    if (holder) part.window.lock(at, Lock::exclusive);
    try_all({false, false, false});
    if (holder) part.window.unlock(at);
    try_all({true, true, true});
    if (holder) part.window.lock(at, Lock::shared);
    try_all({false, true, true});
    if (holder) part.window.unlock(at);
    if (holder) part.window.lock_all();
    try_all({false, true, true});
    if (holder) part.window.unlock_all();
    try_all({true, true, true});
    if (holder) part.window.lock(0, Lock::exclusive);  // of another rank
    try_all({at != 0, at != 0, false});
    if (holder) part.window.unlock(0);
  });
}

/// So that the limit of a lock is not spent on connecting. Shared locks change nothing at rank 0.
void reach_all(WindowPart& part) {
  for (const Rank at : all_ranks(part.context)) {
    part.window.lock(at, Lock::shared);
    part.window.unlock(at);
  }
  board().meet(part.context);
}

TEST_P(WindowLocks, of_all_ranks_exclude_those_before_and_after_the_first_one) {
  run_peers(peers(), [](Context& context) {
    if (context.size() == 1) return;
    const Rank at = context.size() - 1;
    const bool first = context.rank() == 0;
    const bool second = context.rank() == 1;
    {
      WindowPart unused(context, GetParam(), 64, 64);
      reach_all(unused);
      if (second) unused.window.lock_all();
      board().meet(context);
      if (first) expect_code(Code::timeout, [&] { unused.window.lock(at, Lock::exclusive, 20ms); });
      board().meet(context);
      if (second) unused.window.unlock_all();
    }
    WindowPart part(context, GetParam(), 64, 64);
    reach_all(part);
    for (int life = 0; life < 2; ++life) {  // before the first lock_all, and after it
      if (first) part.window.lock(at, Lock::exclusive);
      if (first) part.window.unlock(at);
      if (first) part.window.lock(at, Lock::exclusive);
      board().meet(context);
      if (second) expect_code(Code::timeout, [&] { part.window.lock_all(20ms); });
      board().meet(context);
      if (first) part.window.unlock(at);
      board().meet(context);
      if (second) part.window.lock_all(10s);
      board().meet(context);
      if (!second) expect_code(Code::timeout, [&] { part.window.lock(at, Lock::exclusive, 20ms); });
      board().meet(context);
      if (second) part.window.unlock_all();
      board().meet(context);
    }
  });
}

/// Counts the holders of each lock on the board, and checks that they exclude each other.
class Holders {
 public:
  explicit Holders(std::size_t ranks) : ranks_(ranks) {}

  void enter(std::size_t at, Lock kind) {
    if (kind == Lock::exclusive) {
      EXPECT_EQ(exclusive(at).fetch_add(1), 0U);
      EXPECT_EQ(shared(at).load() + all().load(), 0U);
    } else {
      shared(at).fetch_add(1);
      EXPECT_EQ(exclusive(at).load(), 0U);
    }
  }
  void leave(std::size_t at, Lock kind) { (kind == Lock::exclusive ? exclusive(at) : shared(at)).fetch_sub(1); }
  void enter_all() {
    all().fetch_add(1);
    for (std::size_t at = 0; at < ranks_; ++at) EXPECT_EQ(exclusive(at).load(), 0U);
  }
  void leave_all() { all().fetch_sub(1); }

 private:
  static std::atomic<std::uint64_t>& all() { return board().word(20); }
  static std::atomic<std::uint64_t>& exclusive(std::size_t at) { return board().word(21 + 2 * at); }
  static std::atomic<std::uint64_t>& shared(std::size_t at) { return board().word(22 + 2 * at); }

  std::size_t ranks_;
};

TEST_P(WindowLocks, are_held_as_an_oracle_says_whenever_the_first_lock_all_comes) {
  const std::uint64_t seed = random_seed();
  run_peers(peers(), [seed](Context& context) {
    std::mt19937 random(static_cast<unsigned>(seed) + static_cast<unsigned>(context.rank()));
    const auto one_in = [&](unsigned n) { return random() % n == 0; };
    const auto hold = [&] {
      if (one_in(4)) std::this_thread::yield();
    };
    for (int windows = 0; windows < (GetParam().ground.network ? 1 : 5); ++windows) {
      WindowPart part(context, GetParam(), 64, 64);
      Holders holders(part.size());
      const std::uint64_t count = times(300, part.size());
      const std::uint64_t lock_all_from = random() % count;
      const auto lock = [&](std::size_t at) {
        const Lock kind = one_in(3) ? Lock::shared : Lock::exclusive;
        part.window.lock(static_cast<Rank>(at), kind);
        holders.enter(at, kind);
        return kind;
      };
      const auto unlock = [&](std::size_t at, Lock kind) {
        hold();
        holders.leave(at, kind);
        part.window.unlock(static_cast<Rank>(at));
      };
      for (std::uint64_t i = 0; i < count; ++i) {
        if (i >= lock_all_from && one_in(3)) {
          part.window.lock_all();
          holders.enter_all();
          hold();
          holders.leave_all();
          part.window.unlock_all();
          continue;
        }
        const std::size_t at = random() % part.size();
        const Lock kind = lock(at);
        if (at + 1 < part.size() && one_in(4)) unlock(at + 1, lock(at + 1));
        unlock(at, kind);
      }
      part.window.fence();
    }
  });
}

TEST_P(WindowLocks, of_one_rank_need_no_call_of_it) {
  run_peers(peers(), [](Context& context) {
    WindowPart part(context, GetParam(), 64, 64);
    if (context.rank() == 0) {
      const Rank at = context.size() - 1;
      for (std::uint64_t i = 1; i <= 5; ++i) {
        part.window.lock(at, i % 2 == 0 ? Lock::shared : Lock::exclusive);
        word_of(part.local, 0) = i;
        part.put(at, 0, kBytesOfWord, 0);
        part.window.unlock(at);
      }
    }
    board().meet(context);
    if (context.rank() == context.size() - 1) {
      part.window.lock(context.rank(), Lock::shared);
      EXPECT_EQ(word_of(part.memory, 0), 5U);
      part.window.unlock(context.rank());
    }
    board().meet(context);
  });
}

// ---- windows

class CollectiveWindows : public CollectiveCases {};

TEST_P(CollectiveWindows, have_memory_of_any_size_at_each_rank) {
  run_peers(peers(), [](Context& context) {
    const auto bytes_at = [](Rank rank) { return rank % 2 == 1 ? 0 : 1000 * static_cast<std::size_t>(rank) + 13; };
    WindowPart part(context, GetParam(), bytes_at(context.rank()), 6000);
    EXPECT_EQ(part.window.rank(), context.rank());
    EXPECT_EQ(part.window.size(), context.size());
    fill(part.local.bytes(), {context.rank(), kTag, 1});
    for (const Rank to : all_ranks(context)) {
      EXPECT_EQ(part.window.target(to).bytes(), bytes_at(to));
      EXPECT_EQ(part.window.target(to).peer(), to);
      expect_code(Code::bad_argument, [&] { part.put(to, 0, bytes_at(to) + 1, 0); });
      if (context.rank() == 0) part.put(to, 0, bytes_at(to), 0);
    }
    part.window.fence();
    EXPECT_EQ(difference(part.memory.bytes().first(bytes_at(context.rank())), {0, kTag, 1}), "");
    part.window.lock_all();
    part.window.unlock_all();
    part.window.close();
  });
}

TEST_P(CollectiveWindows, say_what_is_wrong_and_change_nothing) {
  run_peers(peers(), [](Context& context) {
    WindowPart part(context, GetParam(), 64, 64);
    CollectiveWindow& window = part.window;
    const Rank self = context.rank();
    const std::vector<Rank> own{self};
    const std::vector<Rank> twice{self, self};
    const std::vector<Rank> none{context.size()};
    const auto refused = [](Code code, const auto& call) { expect_code(code, call); };
    refused(Code::bad_argument, [&] { static_cast<void>(window.target(context.size())); });
    refused(Code::bad_argument, [&] { static_cast<void>(window.target(-1)); });
    refused(Code::bad_argument, [&] { window.post(twice); });
    refused(Code::bad_argument, [&] { window.start(none); });
    refused(Code::bad_argument, [&] { window.lock(-1, Lock::shared); });
    refused(Code::bad_argument, [&] { window.flush(context.size()); });
    refused(Code::misuse, [&] { window.complete(); });
    refused(Code::misuse, [&] { window.wait(); });
    refused(Code::misuse, [&] { static_cast<void>(window.test()); });
    refused(Code::misuse, [&] { window.unlock(self); });
    refused(Code::misuse, [&] { window.unlock_all(); });
    refused(Code::misuse, [&] { const CollectiveWindow again(context, kWindow, Slice()); });
    refused(Code::bad_argument, [&] { const CollectiveWindow nameless(context, "", Slice()); });
    refused(Code::bad_argument, [&] { const CollectiveWindow named(context, std::string(4001, 'w'), Slice()); });

    const auto inside = [&](bool posted) {
      refused(Code::misuse, [&] { window.fence(); });
      refused(Code::misuse, [&] { window.close(); });
      if (posted) return;
      refused(Code::misuse, [&] { window.lock_all(); });
      refused(Code::misuse, [&] { window.start(own); });
    };
    window.lock(self, Lock::shared);  // so that a later one may take the short way
    window.unlock(self);
    window.post(own);
    refused(Code::misuse, [&] { window.post(own); });
    inside(true);
    window.start(own);
    inside(false);
    refused(Code::misuse, [&] { window.lock(self, Lock::shared); });
    window.complete();
    window.wait();
    window.lock(self, Lock::exclusive);
    inside(false);
    refused(Code::misuse, [&] { window.lock(self, Lock::shared); });
    refused(Code::misuse, [&] { window.unlock_all(); });
    window.unlock(self);
    window.lock_all();
    inside(false);
    refused(Code::misuse, [&] { window.lock(self, Lock::shared); });
    refused(Code::misuse, [&] { window.unlock(self); });
    window.unlock_all();

    CollectiveWindow moved = std::move(window);
    refused(Code::misuse, [&] { window.fence(); });  // NOLINT(bugprone-use-after-move): what is moved from is empty
    EXPECT_EQ(window.rank(), -1);                    // NOLINT(bugprone-use-after-move)
    moved.fence();
    window = std::move(moved);
    window.fence();
    window.close();
    refused(Code::misuse, [&] { static_cast<void>(window.target(self)); });
    refused(Code::misuse, [&] { window.lock_all(); });
    refused(Code::misuse, [&] { window.lock(self, Lock::shared); });
  });
}

TEST_P(CollectiveWindows, live_side_by_side) {
  run_peers(peers(), [](Context& context) {
    const std::size_t count = GetParam().ground.network ? 6 : 40;
    const Buffer memory(context, GetParam(), count * 16);
    std::vector<CollectiveWindow> windows;
    for (std::size_t i = 0; i < count; ++i)
      windows.emplace_back(context, "window " + std::to_string(i), memory.all().slice(i * 16, 16));
    const Buffer local(context, GetParam(), count * kBytesOfWord);
    const Rank right = (context.rank() + 1) % context.size();
    for (std::size_t i = 0; i < count; ++i) {
      word_of(local, i) = i * 100 + static_cast<std::uint64_t>(right);
      windows[i].target(right).put({}, local.all().slice(i * kBytesOfWord, kBytesOfWord), kBytesOfWord);
    }
    for (auto& window : windows) window.fence();
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_EQ(word_of(memory, 2 * i + 1), i * 100 + static_cast<std::uint64_t>(context.rank()));
  });
}

/// All ranks add to the numbers of rank 0 at once.
TEST_P(CollectiveWindows, may_be_for_the_atomics_of_targets_alone) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kNumbers = 64;
    const Buffer memory(context, GetParam(), kNumbers * kBytesOfWord);
    const Buffer ones(context, GetParam(), kNumbers * kBytesOfWord);
    std::memset(memory.bytes().data(), 0, memory.bytes().size());
    for (std::size_t i = 0; i < kNumbers; ++i) word_of(ones, i) = 1;
    CollectiveWindow window(context, kWindow, memory.all(), AtomicsOf::targets);
    Target& first = window.target(0);
    const std::uint64_t rounds = times(600, static_cast<std::size_t>(context.size()));
    for (std::uint64_t i = 0; i < rounds; ++i) first.accumulate({}, Op::sum, Number::uint64, ones.all(), 0);
    window.fence();
    const std::string how = first.describe();
    const bool by_owner = how.find("by a thread of the owner") != std::string::npos;
    EXPECT_TRUE(by_owner || how.find("by the processors of one rank at a time") != std::string::npos) << how;
    for (std::size_t i = 0; i < (context.rank() == 0 ? kNumbers : 0); ++i)
      EXPECT_EQ(word_of(memory, i), rounds * static_cast<std::uint64_t>(context.size())) << i;
    window.close();
  });
}

TEST_P(CollectiveWindows, that_an_exception_destroys_wait_for_nobody_and_end_the_waits_of_peers) {
  run_peers(with_untold(peers()), [](Context& context) {
    const auto use = [&] {
      WindowPart part(context, GetParam(), 64, 64);
      board().meet(context);
      if (context.rank() == 0) throw std::runtime_error("of the program");
      expect_code(Code::peer_lost, [&] { part.window.fence(30s); });
    };
    if (context.rank() != 0) return use();
    EXPECT_THROW(use(), std::runtime_error);
  });
}

class LateWords : public CollectiveCases {};

/// `unlock` does not wait until its lock is subtracted.
TEST_P(LateWords, of_an_unlock_are_awaited_by_the_end_of_the_window) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kLeftWindow = 10;  // on the board
    const Buffer memory(context, GetParam(), 64);
    CollectiveWindow window(context, kWindow, memory.all());
    std::jthread releasing;
    if (context.rank() == 1) {
      window.lock(0, Lock::exclusive);
      hold_accesses(true);
      window.unlock(0);
      releasing = std::jthread([] {  // once the window is closed at rank 0, which may not be
        const auto end = Clock::now() + 300ms;
        while (board().word(kLeftWindow).load() == 0 && Clock::now() < end) std::this_thread::yield();
        hold_accesses(false);
      });
    }
    window.close();
    board().set(kLeftWindow + static_cast<std::size_t>(context.rank()), 1);
    board().meet(context);
  });
}

/// Threads of a process share its memory, which grows until each of them has had its part: the last rounds count.
TEST_P(CollectiveWindows, are_made_and_freed_without_growth) {
  run_peers(peers(), [](Context& context) {
    const Buffer memory(context, GetParam(), 64);
    const Buffer local(context, GetParam(), 64);
    const std::vector<Rank> all = all_ranks(context);
    const std::size_t own = static_cast<std::size_t>(context.rank()) * 8;
    const auto use = [&](const std::string& name) {
      CollectiveWindow window(context, name, memory.all());
      window.target(context.size() - 1).put({}, local.all().slice(0, 8), own);
      window.fence();
      window.post(all);
      window.start(all);
      window.complete();
      window.wait();
      window.lock(0, Lock::exclusive);
      window.unlock(0);
    };
    const int count = GetParam().ground.network || context.size() > 2 ? (GetParam().ground.slow ? 2 : 5) : 100;
    long least_growth = std::numeric_limits<long>::max();
    for (int round = 0; round < 4; ++round) {
      board().meet(context);
      const long before = resident_kib();
      board().meet(context);
      for (int i = 0; i < count; ++i) use(kWindow);
      board().meet(context);
      if (round > 0) least_growth = std::min(least_growth, resident_kib() - before);
    }
    if (!kSanitized) {
      EXPECT_LE(least_growth, 512);
    }
  });
}

// ---- ranks that die

class LostCollectives : public WithKills {
 protected:
  /// Rank 1 of three dies in `dying` after `before` has run everywhere; the others get Code::peer_lost from `wait`.
  template <class Before, class Wait, class Dying>
  static void rank_1_dies(Before before, Wait wait, Dying dying) {
    Case of_three = GetParam();
    of_three.ranks = 3;
    Peers peers = of_three.peers();
    peers.keep_going = peers.untold = true;
    peers.limit = 60s;
    const Ended ended = end_of_peers(peers, [&](Context& context) {
      constexpr std::size_t kLeft = 11;
      std::optional<WindowPart> part(std::in_place, context, GetParam(), 64, 64);
      before(*part);
      board().word(kReady).fetch_add(1);
      board().await(kReady, 3);
      if (context.rank() == 1) return dying(*part);
      expect_released([&] { expect_code(Code::peer_lost, [&] { wait(*part); }); }, 0ms, kNoticed);
      board().word(kLeft).fetch_add(1);
      board().await(kLeft, 2);  // a rank that leaves would end the other's wait
      part->window.close(100ms);
    });
    expect_only_rank_1_killed(ended);
  }
  template <class Before, class Wait>
  static void rank_1_dies(Before before, Wait wait) {
    rank_1_dies(before, wait, [](WindowPart&) { die(); });
  }
};

TEST_P(LostCollectives, end_a_fence) {
  rank_1_dies([](WindowPart&) {}, [](WindowPart& part) { part.window.fence(); });
}

TEST_P(LostCollectives, end_a_start) {
  const std::vector<Rank> victim{1};
  rank_1_dies([](WindowPart&) {}, [&](WindowPart& part) { part.window.start(victim); });
}

TEST_P(LostCollectives, end_a_second_start) {
  const std::vector<Rank> others{0, 2};
  const std::vector<Rank> victim{1};
  rank_1_dies(
      [&](WindowPart& part) {
        const bool dies = part.context.rank() == 1;
        if (dies) part.window.post(others);
        if (!dies) part.window.start(victim);
        if (!dies) part.window.complete();
        if (dies) part.window.wait();
      },
      [&](WindowPart& part) { part.window.start(victim); });
}

TEST_P(LostCollectives, end_a_wait) {
  const std::vector<Rank> others{0, 2};
  const std::vector<Rank> victim{1};
  rank_1_dies(
      [&](WindowPart& part) {
        if (part.context.rank() != 1) part.window.post(victim);
        if (part.context.rank() == 1) part.window.start(others);
      },
      [](WindowPart& part) { part.window.wait(); });
}

TEST_P(LostCollectives, end_a_wait_for_a_lock_that_the_dead_one_holds) {
  rank_1_dies(
      [](WindowPart& part) {
        if (part.context.rank() == 1) part.window.lock(2, Lock::exclusive);
      },
      [](WindowPart& part) { part.window.lock(2, part.context.rank() == 0 ? Lock::exclusive : Lock::shared); });
}

TEST_P(LostCollectives, end_a_lock_of_the_dead_one) {
  rank_1_dies([](WindowPart&) {},
              [](WindowPart& part) {
                for (;; part.window.unlock(1)) part.window.lock(1, Lock::shared);
              });
}

TEST_P(LostCollectives, end_an_exclusive_lock_where_the_dead_one_locks_all) {
  rank_1_dies(
      [](WindowPart& part) {
        if (part.context.rank() == 1) part.window.lock_all();
      },
      [](WindowPart& part) { part.window.lock(part.context.rank(), Lock::exclusive); });
}

TEST_P(LostCollectives, end_what_waits_for_a_rank_that_waits_for_the_dead_one) {
  rank_1_dies([](WindowPart&) {},
              [](WindowPart& part) {
                const std::vector<Rank> next{part.context.rank() == 0 ? 1 : 0};
                part.window.start(next);
              });
}

/// That call makes all ranks count exclusive locks at rank 0, and awaits those that are not counted.
TEST_P(LostCollectives, end_the_first_lock_all_where_the_dead_one_holds_a_lock) {
  rank_1_dies(
      [](WindowPart& part) {
        if (part.context.rank() == 1) part.window.lock(0, Lock::exclusive);
      },
      [](WindowPart& part) { part.window.lock_all(); });
}

/// The rank that dies awaits the locks of the others there.
TEST_P(LostCollectives, end_locks_at_any_instant_of_the_first_lock_all) {
  const std::uint64_t seed = random_seed();
  rank_1_dies(
      [](WindowPart& part) {
        if (part.context.rank() != 1) part.window.lock(part.context.rank(), Lock::exclusive);
      },
      [=](WindowPart& part) {
        const Rank rank = part.context.rank();
        std::mt19937_64 random(seed + part.rank());
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
        part.window.unlock(rank);
        for (Rank other = rank;; other = (other + 1) % part.context.size()) {
          part.window.lock(other, Lock::exclusive);
          part.window.unlock(other);
        }
      },
      [=](WindowPart& part) {
        const std::jthread killer([after = std::mt19937_64(seed)() % 500] {
          std::this_thread::sleep_for(std::chrono::microseconds(after));
          die();
        });
        for (;; part.window.unlock_all()) part.window.lock_all();
      });
}

TEST_P(LostCollectives, that_are_aborted_end_all_waits) {
  Case of_three = GetParam();
  of_three.ranks = 3;
  run_peers(with_untold(of_three.peers()), [](Context& context) {
    WindowPart part(context, GetParam(), 64, 64);
    const std::vector<Rank> next{(context.rank() + 1) % 3};
    if (context.rank() == 1) {
      board().await(kReady, 2);
      context.abort("enough");
    }
    board().word(kReady).fetch_add(1);
    expect_code(Code::aborted, [&] {
      if (context.rank() == 0) part.window.start(next);
      part.window.fence();
    });
    board().meet(context);
  });
}

std::vector<Case> of_ranks(const std::vector<int>& ranks) {
  std::vector<Case> all = memory_cases();  // with the networks that are named
  for (const Case& one : on(all_grounds(), memory_cases())) all.push_back(one);
  std::set<std::string> names;
  std::erase_if(all, [&](const Case& one) { return one.cuda || !names.insert(one.name()).second; });
  return with_ranks(all, ranks);
}

std::vector<Case> of_processes() {
  std::vector<Case> all = of_ranks({2});
  std::erase_if(all, [](const Case& one) { return !one.ground.processes || one.user; });
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, Fences, testing::ValuesIn(of_ranks({1, 2, 3, 5})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, Posts, testing::ValuesIn(of_ranks({1, 2, 3, 5})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, WindowLocks, testing::ValuesIn(of_ranks({1, 2, 3, 5})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, CollectiveWindows, testing::ValuesIn(of_ranks({1, 2, 3, 5})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LateWords, testing::ValuesIn(on({{"posted", "posted"}}, {Case{}})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostCollectives, testing::ValuesIn(of_processes()), CaseName());

}  // namespace
