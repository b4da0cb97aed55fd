// SPDX-License-Identifier: Apache-2.0
// Gets, puts and atomics on memory that a peer offers. Rank 0 offers memory, and uses it through a link to itself as
// the others do.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <set>

#include "tests/conformance/seam.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using backends::Range;
using Kind = backends::Request::Kind;

constexpr std::size_t kWord = 8;
constexpr std::size_t kOlds = 200;  // on the board: that many old values at a time, from word 0 on
constexpr std::size_t kPid = 250;   // of the process that is killed
constexpr std::size_t kMayDie = 251;

bool has_atomics(const Case& one) { return !one.ground.network && !(one.user && one.ground.backend == "shm"); }

std::vector<Case> with_atomics(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& one) { return !has_atomics(one); });
  return cases;
}

std::vector<Case> without_atomics(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& one) { return has_atomics(one); });
  return cases;
}

Asked atomic(Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare = 0,
             std::size_t old_at = 0) {
  return {kind, offset, {old_at, kWord}, operand, compare};
}

std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t index) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + index * kWord, kWord);
  return word;
}

/// Rank 0's words begin at 0, and the others know it.
void begin_with_zeros(const Context& context, const Asker& asker) {
  std::fill(asker.offered().begin(), asker.offered().end(), std::byte{0});
  board().meet(context);
}

// ---- bytes

class Accesses : public testing::TestWithParam<Case> {};

constexpr std::size_t kMost = 1024 * 1024;
constexpr std::size_t kOffered = 2 * kMost;
constexpr Stamp kTheirs{0, 7, 1};

/// Sizes of every magnitude, nothing and everything among them.
std::size_t random_size(std::mt19937& random) {
  const std::size_t limit = std::size_t{1} << random() % 21;
  return random() % 16 == 0 ? kMost : random() % (limit + 1);
}

TEST_P(Accesses, get_every_byte_and_no_other) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const auto depth = static_cast<std::size_t>(one.depth);
    Asker asker(context, one, depth * kMost, kOffered);
    if (context.rank() == 0) fill(asker.offered(), kTheirs);
    board().meet(context);
    std::mt19937 random(static_cast<unsigned>(20261121 + context.rank()));
    for (std::uint64_t round = 0; round < one.times(40) / depth + 1; ++round) {
      std::vector<Asked> asked;
      for (std::size_t i = 0; i < depth; ++i) {
        const std::size_t bytes = random_size(random);
        asked.push_back(
            {Kind::get, random() % (kOffered - bytes + 1), {i * kMost + random() % (kMost - bytes + 1), bytes}});
        asker.ask(asked.back());
      }
      asker.finish();
      ASSERT_EQ(asker.watch().failure(), "");
      for (std::size_t i = 0; i < depth; ++i) {
        const Range part = asked[i].local;
        const auto slot = asker.local().subspan(i * kMost, kMost);
        ASSERT_EQ(difference(asker.local().subspan(part.offset, part.bytes), kTheirs, asked[i].offset), "");
        ASSERT_EQ(unlike_poison(slot.subspan(part.offset + part.bytes - i * kMost)), "");
        poison(slot);
      }
    }
    asker.part();
  });
}

TEST_P(Accesses, put_every_byte_and_no_other) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr std::size_t kPiece = 40000;
    const auto pieces = static_cast<std::size_t>(context.size()) * 8;
    Asker asker(context, one, 8 * kPiece, pieces * kPiece);
    const Stamp stamp{context.rank(), 7, 1};
    fill(asker.local(), stamp);
    board().meet(context);
    const std::size_t first = static_cast<std::size_t>(context.rank()) * 8;
    for (std::size_t i = 0; i < 8; ++i)  // of each piece all but its last 8 - i bytes
      asker.ask({Kind::put, (first + i) * kPiece, {i * kPiece, kPiece - 8 + i}});
    asker.finish();
    EXPECT_EQ(asker.watch().failure(), "");
    board().meet(context);
    for (std::size_t i = 0; context.rank() == 0 && i < pieces; ++i) {
      const auto piece = asker.offered().subspan(i * kPiece, kPiece);
      const std::size_t bytes = kPiece - 8 + i % 8;
      EXPECT_EQ(difference(piece.first(bytes), {static_cast<Rank>(i / 8), 7, 1}, i % 8 * kPiece), "");
      EXPECT_EQ(unlike_poison(piece.subspan(bytes)), "");
    }
    asker.part();
  });
}

/// Asserts that nothing has moved between our memory, which has been filled with our stamp, and rank 0's. All ranks
/// call it.
void expect_nothing_moved(const Context& context, Asker& asker) {
  asker.part();
  EXPECT_EQ(difference(asker.local(), {context.rank(), 7, 1}), "");
  EXPECT_EQ(unlike_poison(asker.offered()), "");
  board().meet(context);
}

/// An impossible request moves nothing, nor do later ones on the link, and no wait hangs.
void expect_refused(const Context& context, const Case& one, const Asked& request, const std::string& why) {
  Asker asker(context, one, 64, 256);
  fill(asker.local(), {context.rank(), 7, 1});
  asker.ask(request);
  asker.ask({Kind::get, 0, {0, 64}});
  asker.finish();
  EXPECT_EQ(asker.watch().failure().substr(0, why.size()), why);
  expect_nothing_moved(context, asker);
}

TEST_P(Accesses, refuse_what_is_out_of_range_or_misaligned) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const std::string beyond = "misuse: 64 bytes at offset 193 are beyond the peer's memory of 256 bytes";
    expect_refused(context, one, {Kind::get, 193, {0, 64}}, beyond);
    expect_refused(context, one, {Kind::put, 193, {0, 64}}, beyond);
    expect_refused(context, one, {Kind::get, ~std::uint64_t{0}, {0, 64}},
                   "misuse: 64 bytes at offset 18446744073709551615");
    expect_refused(context, one, {Kind::swap, 12, {0, 8}, 1},
                   "misuse: an atomic at offset 12, which is not a multiple of 8");
    expect_refused(context, one, {Kind::swap, 256, {0, 8}, 1},
                   "misuse: 8 bytes at offset 256 are beyond the peer's memory");
    expect_refused(context, one, {Kind::fetch_add, 8, {0, 4}, 1},
                   "misuse: the old value of an atomic takes 8 bytes, not 4");
  });
}

TEST_P(Accesses, refuse_to_offer_memory_whose_words_are_not_aligned) {
  run_peers(GetParam().peers(), [](Context& context) {
    Asker asker(context, GetParam(), 64, 64);
    const auto local = asker.local();
    EXPECT_THROW(static_cast<void>(asker.link().offer({local.data() + 4, 8, nullptr}, {})), std::invalid_argument);
    asker.part();
  });
}

TEST_P(Accesses, move_nothing_once_the_watch_is_shut) {
  run_peers(GetParam().peers(), [](Context& context) {
    Asker asker(context, GetParam(), 64, 64);
    fill(asker.local(), {context.rank(), 7, 1});
    asker.watch().fail(Code::aborted, "by the test");
    for (int i = 0; i < 20; ++i) {
      asker.ask({Kind::put, 0, {0, 64}});
      asker.ask({Kind::get, 0, {0, 64}});
    }
    expect_nothing_moved(context, asker);
  });
}

TEST_P(Accesses, complete_once_the_watch_is_shut_if_they_move_nothing) {
  run_peers(GetParam().peers(), [](Context& context) {
    Asker asker(context, GetParam(), 64, 64);
    fill(asker.local(), {context.rank(), 7, 1});
    asker.watch().shut_it();
    for (int i = 0; i < 20; ++i) asker.ask({Kind::none, 0, {}});
    asker.finish();
    EXPECT_EQ(asker.watch().failure(), "");
    asker.ask({Kind::put, 0, {0, 64}});
    asker.finish();
    EXPECT_EQ(asker.watch().failure(), "closed: the peer has closed its memory, and later accesses move nothing");
    expect_nothing_moved(context, asker);
  });
}

// ---- words

class Atomics : public testing::TestWithParam<Case> {};

/// The first `times` words of every rank's own memory are all different, and together they are `all`.
void expect_each_once(const Context& context, const Asker& asker, std::size_t times, std::set<std::uint64_t> all) {
  for (Rank rank = 0; rank < context.size(); ++rank) {
    for (std::size_t first = 0; first < times; first += kOlds) {
      const std::size_t count = std::min(kOlds, times - first);
      for (std::size_t i = 0; context.rank() == rank && i < count; ++i)
        board().set(i, word_at(asker.local(), first + i));
      board().meet(context);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(all.erase(board().word(i).load()), 1U);
      board().meet(context);
    }
  }
  EXPECT_TRUE(all.empty());
}

TEST_P(Atomics, fetch_add_loses_nothing_and_gives_each_value_once) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const std::uint64_t times = one.times(1000);
    Asker asker(context, one, times * kWord, 64);
    begin_with_zeros(context, asker);
    for (std::uint64_t i = 0; i < times; ++i) asker.ask(atomic(Kind::fetch_add, 16, 1, 0, i * kWord));
    asker.finish();
    ASSERT_EQ(asker.watch().failure(), "");
    std::set<std::uint64_t> all;
    for (std::uint64_t i = 0; i < times * static_cast<std::uint64_t>(context.size()); ++i) all.insert(i);
    expect_each_once(context, asker, times, all);
    EXPECT_EQ(asker.ask_one(atomic(Kind::fetch_add, 16, 0)), all.size());
    asker.part();
  });
}

TEST_P(Atomics, fetch_add_takes_all_64_bits) {
  run_peers(GetParam().peers(), [](Context& context) {
    Asker asker(context, GetParam(), kWord, 64);
    begin_with_zeros(context, asker);
    const auto mine = static_cast<std::uint64_t>(context.rank()) * kWord;
    EXPECT_EQ(asker.ask_one(atomic(Kind::fetch_add, mine, ~std::uint64_t{0})), 0U);
    EXPECT_EQ(asker.ask_one(atomic(Kind::fetch_add, mine, 0xFEDC'BA98'7654'3211U)), ~std::uint64_t{0});
    EXPECT_EQ(asker.ask_one(atomic(Kind::fetch_add, mine, 0)), 0xFEDC'BA98'7654'3210U);
    asker.part();
  });
}

TEST_P(Atomics, swap_passes_every_value_on) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    const std::uint64_t times = one.times(200);
    Asker asker(context, one, (times + 1) * kWord, 64);
    begin_with_zeros(context, asker);
    const auto value = [&](Rank rank, std::uint64_t i) { return static_cast<std::uint64_t>(rank + 1) << 32 | i; };
    for (std::uint64_t i = 0; i < times; ++i) asker.ask(atomic(Kind::swap, 8, value(context.rank(), i), 0, i * kWord));
    asker.finish();
    ASSERT_EQ(asker.watch().failure(), "");
    board().meet(context);
    std::set<std::uint64_t> all{0};
    for (Rank rank = 0; rank < context.size(); ++rank) {
      for (std::uint64_t i = 0; i < times; ++i) all.insert(value(rank, i));
    }
    all.erase(asker.ask_one(atomic(Kind::fetch_add, 8, 0, 0, times * kWord)));  // the last one is still there
    expect_each_once(context, asker, times, all);
    asker.part();
  });
}

TEST_P(Atomics, compare_swap_makes_a_lock) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    constexpr std::uint64_t kLock = 0, kCount = 64;  // 64: another line
    const auto me = static_cast<std::uint64_t>(context.rank()) + 1;
    const std::uint64_t times = one.times(200);
    Asker asker(context, one, 2 * kWord, 128);
    begin_with_zeros(context, asker);
    for (std::uint64_t i = 0; i < times; ++i) {
      while (asker.ask_one(atomic(Kind::compare_swap, kLock, me, 0)) != 0) {
        ASSERT_EQ(asker.watch().failure(), "");
        std::this_thread::yield();
      }
      const std::uint64_t count = asker.ask_one({Kind::get, kCount, {kWord, kWord}}) + 1;
      std::memcpy(asker.local().data() + kWord, &count, kWord);
      asker.ask_one({Kind::put, kCount, {kWord, kWord}});
      ASSERT_EQ(asker.ask_one(atomic(Kind::compare_swap, kLock, 0, me)), me);
    }
    board().meet(context);
    EXPECT_EQ(asker.ask_one({Kind::get, kCount, {kWord, kWord}}), times * static_cast<std::uint64_t>(context.size()));
    EXPECT_EQ(asker.ask_one(atomic(Kind::compare_swap, kLock, 1, 1)), 0U) << "it is free, and stays so";
    asker.part();
  });
}

class NoAtomics : public testing::TestWithParam<Case> {};

TEST_P(NoAtomics, are_unsupported_where_the_memory_is_not_mapped) {
  run_peers(GetParam().peers(), [](Context& context) {
    const Case& one = GetParam();
    expect_refused(context, one, atomic(Kind::fetch_add, 8, 1), "unsupported: an atomic on the peer's memory: ");
  });
}

// ---- a peer that dies

class LostOwner : public WithKills {};

TEST_P(LostOwner, ends_what_was_asked) {
  Peers peers = GetParam().peers();
  peers.keep_going = true;
  peers.limit = 60s;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    Asker asker(context, one, 4096, 4096);
    if (context.rank() == 0) {
      asker.finish();
      board().set(kPid, static_cast<std::uint64_t>(::getpid()));
      board().await(kMayDie, 1);
      ::raise(SIGKILL);
    }
    board().await(kPid, 1);
    asker.ask({Kind::get, 0, {0, 4096}});
    asker.finish();
    EXPECT_EQ(asker.watch().failure(), "");
    board().set(kMayDie, 1);
    while (::kill(static_cast<pid_t>(board().word(kPid).load()), 0) == 0) std::this_thread::sleep_for(1ms);
    for (int i = 0; i < one.depth; ++i) asker.ask({Kind::get, 0, {0, 4096}});
    // A provider may try to reach it for ever. The layer above, which sees the sockets, ends that.
    if (one.ground.name != "shm") {
      asker.link().lost();
      asker.watch().fail(Code::peer_lost, "rank 0 has ended");
    }
    asker.finish();
    EXPECT_NE(asker.watch().failure(), "");
    asker.ask({Kind::get, 0, {0, 4096}});
    expect_within(20s, [&] { return asker.all_over(); });
  });
  expect_only_killed(0, ended);
}

/// Ranks that are processes; mapped memory stays when its owner dies.
std::vector<Case> with_owners_to_lose(std::vector<Case> cases) {
  std::erase_if(cases,
                [](const Case& one) { return !one.ground.processes || (one.ground.name == "shm" && !one.user); });
  return cases;
}

std::vector<Case> everywhere() {
  std::vector<Case> all = with_depths(memory_cases(), {4});  // with the networks that are named
  for (const Case& one : on(all_grounds(), with_depths(memory_cases(), {1, 4}))) all.push_back(one);
  std::set<std::string> names;
  std::erase_if(all, [&](const Case& one) { return !names.insert(one.name()).second; });
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, Accesses, testing::ValuesIn(everywhere()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, Atomics, testing::ValuesIn(with_atomics(everywhere())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, NoAtomics, testing::ValuesIn(without_atomics(everywhere())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostOwner, testing::ValuesIn(with_owners_to_lose(everywhere())), CaseName());

}  // namespace
