// SPDX-License-Identifier: Apache-2.0
// Collectives: the data, the bits, and who waits for whom.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/cases.hpp"
#include "tests/conformance/random_seed.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr const char* kName = "one";

/// Sizes of parts that decide how they travel: none, in a line, aside, in their place.
constexpr std::size_t kPartSizes[] = {0, 8, 1000, 8192, 20'000};

/// Random, and the same at all ranks.
class Choice {
 public:
  explicit Choice(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_); }
  std::size_t size() { return kPartSizes[below(std::size(kPartSizes))]; }
  bool coin() { return below(2) == 0; }

 private:
  std::mt19937_64 random_;
};

/// Holds up the thread that calls it, one time in four: ranks are late in places that change.
class Delay {
 public:
  explicit Delay(std::uint64_t seed) : choice_(seed) {}
  void operator()() {
    if (choice_.below(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(choice_.below(300)));
  }

 private:
  Choice choice_;
};

#ifdef __SANITIZE_THREAD__
constexpr bool kUnderTsan = true;
#else
constexpr bool kUnderTsan = false;
#endif

/// Shares of a result land in place, after what this rank has sent by another channel: through shm ThreadSanitizer does
/// not see that order.
bool hidden_from_tsan() {
  return kUnderTsan && testing::TestWithParam<Case>::GetParam().ground.name == "shm_between_threads";
}

class Collectives : public testing::TestWithParam<Case> {
 public:
  static Peers peers() {
    (void)random_seed();
    Peers peers = GetParam().peers();
    peers.limit = 90s;
    // Streams of threads share the hardware queues of a process, where one that waits holds up those behind it.
    if (GetParam().cuda) peers.environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS=32");
    return peers;
  }
  /// A pretended machine whose nodes are of different sizes.
  static Peers on_two_nodes() {
    Peers peers = Collectives::peers();
    std::string nodes = "0";
    for (int rank = 1; rank < GetParam().ranks; ++rank) nodes += rank % 3 == 1 ? ",1" : ",0";
    if (GetParam().ranks > 1) peers.environment.push_back("SLUICE_TOPOLOGY=" + nodes);
    return peers;
  }
  static int rounds(int usual) { return GetParam().ground.network ? std::min(usual, 3) : usual; }
};

/// Of those that only move bytes: also on streams of GPUs.
class Exchanges : public Collectives {};

/// A rank, the stream of its case, and memory.
struct Member {
  Member(Context& in, std::size_t source_bytes, std::size_t result_bytes)
      : context(in), order(Collectives::GetParam()),
        source(in, Collectives::GetParam(), std::max<std::size_t>(1, source_bytes)),
        result(in, Collectives::GetParam(), std::max<std::size_t>(1, result_bytes)),
        from(source.all().slice(0, source_bytes)), to(result.all().slice(0, result_bytes)),
        host_delay(random_seed() + 2 * rank()), stream_delay(random_seed() + 2 * rank() + 1) {}

  std::size_t rank() const { return static_cast<std::size_t>(context.rank()); }
  std::size_t size() const { return static_cast<std::size_t>(context.size()); }
  Stream stream() { return order.stream(); }
  /// `before` and `after` run in the order of the stream. The host is late by chance, and so is the stream.
  template <class Before, class After>
  void once(Collective& collective, Before before, After after) {
    order.run([this, before] {
      before();
      stream_delay();
    });
    host_delay();
    collective.start(stream());
    host_delay();
    order.run([this] { stream_delay(); });
    collective.wait(stream());
    order.run(after);
  }
  void end() { context.synchronize(stream()); }

  Context& context;
  test::Order order;  // before what it uses: destroyed last
  Buffer source;
  Buffer result;
  Slice from;
  Slice to;
  Delay host_delay;
  Delay stream_delay;
};

std::span<std::byte> part(const Slice& slice, std::size_t offset, std::size_t bytes) {
  return bytes_of(slice).subspan(offset, bytes);
}

// ---- moving bytes

TEST_P(Exchanges, let_no_rank_pass_a_barrier_before_all_have_started) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kCome = 10;  // on the board
    Member member(context, 0, 0);
    Collective all = barrier(context, kName);
    for (int round = 1; round <= rounds(100); ++round) {
      const auto everybody = static_cast<std::uint64_t>(round) * member.size();
      member.once(
          all, [] { board().word(kCome).fetch_add(1); }, [=] { ASSERT_GE(board().word(kCome).load(), everybody); });
      member.end();
    }
  });
}

TEST_P(Exchanges, broadcast_what_the_root_has) {
  run_peers(peers(), [](Context& context) {
    for (const char* algorithm : {"binomial tree", "shares", "level tree", ""}) {
      for (const std::size_t bytes : {0, 8, 8192, 70'001}) {
        Member member(context, bytes, 0);
        const Rank root = static_cast<Rank>(bytes % member.size());
        Collective all = broadcast(context, kName, member.from, root, {.algorithm = algorithm});
        for (std::uint64_t round = 1; round <= 3; ++round) {
          member.once(
              all,
              [&, round] {
                if (context.rank() == root) fill(bytes_of(member.from), {root, kTag, round});
              },
              [&, round] {
                EXPECT_EQ(difference(bytes_of(member.from), {root, kTag, round}), "") << algorithm;
                if (context.rank() != root) poison(bytes_of(member.from));
              });
        }
        member.end();
      }
    }
  });
}

TEST_P(Exchanges, gather_scatter_and_allgather_parts_of_any_size) {
  run_peers(peers(), [](Context& context) {
    Choice choice(random_seed());
    for (int i = 0; i < rounds(6); ++i) {
      const auto size = static_cast<std::size_t>(context.size());
      std::vector<std::size_t> bytes(size);
      for (auto& of : bytes) of = choice.size();
      std::vector<std::size_t> begin(size);
      std::exclusive_scan(bytes.begin(), bytes.end(), begin.begin(), std::size_t{0});
      const std::size_t all_bytes = begin.back() + bytes.back();
      const auto root = static_cast<Rank>(choice.below(size));
      const bool in_place = choice.below(2) == 0;
      const auto own = static_cast<std::size_t>(context.rank());
      Member member(context, bytes[own], all_bytes);
      const Slice place = member.to.slice(begin[own], bytes[own]);
      const bool at_root = context.rank() == root;
      Collective to_root = gather(context, "gather", in_place && at_root ? place : member.from, member.to, root, bytes);
      Collective from_root =
          scatter(context, "scatter", member.to, in_place && at_root ? place : member.from, root, bytes);
      Collective to_all = allgather(context, "allgather", in_place ? place : member.from, member.to, bytes);
      const auto fill_own = [&](const Slice& slice, std::uint64_t round) {
        fill(bytes_of(slice), {context.rank(), kTag, round});
      };
      const auto expect_all = [&](std::uint64_t round) {
        for (std::size_t rank = 0; rank < size; ++rank) {
          EXPECT_EQ(difference(part(member.to, begin[rank], bytes[rank]), {static_cast<Rank>(rank), kTag, round}), "");
        }
      };
      for (std::uint64_t round = 1; round <= 3; ++round) {
        member.once(
            to_root, [&, round] { fill_own(in_place && at_root ? place : member.from, round); },
            [&, round] {
              if (at_root) expect_all(round);
            });
        member.once(
            from_root,
            [&] {
              if (!(in_place && at_root)) poison(bytes_of(member.from));
            },
            [&, round] {
              const Slice& mine = in_place && at_root ? place : member.from;
              EXPECT_EQ(difference(bytes_of(mine), {context.rank(), kTag, round}), "");
            });
        member.once(
            to_all, [&, round] { fill_own(in_place ? place : member.from, round + 100); },
            [&, round] { expect_all(round + 100); });
      }
      member.end();
    }
  });
}

/// An empty part overlaps nothing, wherever it lies.
TEST_P(Exchanges, gather_scatter_and_allgather_an_empty_part_from_inside_of_all) {
  run_peers(peers(), [](Context& context) {
    const auto size = static_cast<std::size_t>(context.size());
    std::vector<std::size_t> bytes(size, 16);
    bytes.front() = 0;  // of rank 0, which is the root
    const bool is_empty = context.rank() == 0;
    Member member(context, 16, 16 * (size - 1));
    const Slice mine = !is_empty ? member.from : size == 1 ? member.to : member.to.slice(4, 0);
    std::vector<Collective> all;
    all.push_back(gather(context, "gather", mine, member.to, 0, bytes));
    all.push_back(scatter(context, "scatter", member.to, mine, 0, bytes));
    all.push_back(allgather(context, "allgather", mine, member.to, bytes));
    for (Collective& collective : all)
      member.once(
          collective,
          [&] {
            if (!is_empty) fill(bytes_of(mine), {context.rank(), kTag, 1});
          },
          [] {});
    member.order.run([&] {
      for (std::size_t rank = 1; rank < size; ++rank)
        EXPECT_EQ(difference(part(member.to, 16 * (rank - 1), 16), {static_cast<Rank>(rank), kTag, 1}), "");
    });
    member.end();
  });
}

TEST_P(Exchanges, exchange_all_with_all_also_in_place) {
  run_peers(peers(), [](Context& context) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{8192}, std::size_t{10'000}}) {
      for (const bool in_place : {false, true}) {
        const auto size = static_cast<std::size_t>(context.size());
        Member member(context, size * bytes, size * bytes);
        const Slice to = in_place ? member.from : member.to;
        Collective all = alltoall(context, kName, member.from, to);
        for (std::uint64_t round = 1; round <= 4; ++round) {
          member.once(
              all,
              [&, round] {
                for (std::size_t rank = 0; rank < size; ++rank)
                  fill(part(member.from, rank * bytes, bytes), {context.rank(), static_cast<Tag>(rank), round});
              },
              [&, round] {
                for (std::size_t rank = 0; rank < size; ++rank) {
                  const Stamp stamp{static_cast<Rank>(rank), static_cast<Tag>(context.rank()), round};
                  EXPECT_EQ(difference(part(to, rank * bytes, bytes), stamp), "");
                }
              });
        }
        member.end();
      }
    }
  });
}

/// On nodes of unequal sizes, whose ranks do not follow one another.
TEST_P(Exchanges, exchange_all_with_all_by_each_algorithm) {
  run_peers(on_two_nodes(), [](Context& context) {
    for (const char* algorithm : {"pairwise", "batched", "hierarchical", "multileader", "node-aware", "locality-aware",
                                  "multileader, locality-aware"}) {
      for (const std::size_t bytes : {std::size_t{8}, std::size_t{9000}}) {
        const auto size = static_cast<std::size_t>(context.size());
        Member member(context, size * bytes, size * bytes);
        Collective all = alltoall(context, kName, member.from, member.to, {.algorithm = algorithm});
        for (std::uint64_t round = 1; round <= 3; ++round) {
          member.once(
              all,
              [&, round] {
                for (std::size_t rank = 0; rank < size; ++rank)
                  fill(part(member.from, rank * bytes, bytes), {context.rank(), static_cast<Tag>(rank), round});
              },
              [&, round] {
                for (std::size_t rank = 0; rank < size; ++rank) {
                  const Stamp stamp{static_cast<Rank>(rank), static_cast<Tag>(context.rank()), round};
                  EXPECT_EQ(difference(part(member.to, rank * bytes, bytes), stamp), "") << algorithm;
                }
              });
        }
        member.end();
      }
    }
  });
}

TEST_P(Exchanges, exchange_blocks_by_their_tags) {
  run_peers(peers(), [](Context& context) {
    // Around a ring, in both directions: with one or two ranks both lead to the same peer.
    const Rank size = context.size();
    const Rank left = (context.rank() + size - 1) % size;
    const Rank right = (context.rank() + 1) % size;
    constexpr Tag kToTheLeft = 7;
    constexpr Tag kToTheRight = 8;
    for (const std::size_t bytes : kPartSizes) {
      Member member(context, 2 * bytes, 2 * bytes);
      const std::vector<Block> from{{left, kToTheLeft, member.from.slice(0, bytes)},
                                    {right, kToTheRight, member.from.slice(bytes, bytes)}};
      const std::vector<Block> to{{left, kToTheRight, member.to.slice(0, bytes)},
                                  {right, kToTheLeft, member.to.slice(bytes, bytes)}};
      Collective halo = alltoall(context, kName, from, to);
      for (std::uint64_t round = 1; round <= 3; ++round) {
        member.once(
            halo,
            [&, round] {
              for (const Block& block : from) fill(bytes_of(block.slice), {context.rank(), block.tag, round});
            },
            [&, round] {
              for (const Block& block : to) {
                EXPECT_EQ(difference(bytes_of(block.slice), {block.peer, block.tag, round}), "");
                poison(bytes_of(block.slice));
              }
            });
      }
      member.end();
    }
  });
}

/// Blocks of random sizes between all ranks, two of each pair, some of which have no bytes, and are in no list or in
/// one. In half of the exchanges what is received overlaps what is sent.
class RandomBlocks {
 public:
  static constexpr std::size_t kTags = 2;

  RandomBlocks(Choice& choice, std::size_t ranks) : ranks_(ranks), sizes_(ranks * ranks * kTags) {
    for (auto& size : sizes_) size = choice.size();
  }

  std::size_t bytes(std::size_t source, std::size_t target, std::size_t tag) const {
    return sizes_[(source * ranks_ + target) * kTags + tag];
  }
  std::size_t sent(std::size_t rank) const {
    std::size_t sum = 0;
    for (std::size_t peer = 0; peer < ranks_; ++peer)
      for (std::size_t tag = 0; tag < kTags; ++tag) sum += bytes(rank, peer, tag);
    return sum;
  }
  std::size_t received(std::size_t rank) const {
    std::size_t sum = 0;
    for (std::size_t peer = 0; peer < ranks_; ++peer)
      for (std::size_t tag = 0; tag < kTags; ++tag) sum += bytes(peer, rank, tag);
    return sum;
  }
  /// The blocks of a rank, one behind the other in the slice. `own`: a choice of this rank.
  std::vector<Block> list(std::size_t rank, bool sends, const Slice& slice, Choice& own) const {
    std::vector<Block> blocks;
    std::size_t begin = 0;
    for (std::size_t peer = 0; peer < ranks_; ++peer)
      for (std::size_t tag = 0; tag < kTags; ++tag) {
        const std::size_t size = sends ? bytes(rank, peer, tag) : bytes(peer, rank, tag);
        if (size > 0 || peer == rank || own.coin())
          blocks.push_back({static_cast<Rank>(peer), static_cast<Tag>(tag), slice.slice(begin, size)});
        begin += size;
      }
    for (std::size_t i = 1; i < blocks.size(); ++i) std::swap(blocks[i], blocks[own.below(i + 1)]);
    return blocks;
  }

 private:
  std::size_t ranks_;
  std::vector<std::size_t> sizes_;  // by source, target and tag
};

TEST_P(Exchanges, exchange_blocks_of_random_sizes_that_may_overlap) {
  run_peers(peers(), [](Context& context) {
    const auto rank = static_cast<std::size_t>(context.rank());
    Choice choice(random_seed());
    Choice own(random_seed() + 1 + rank);
    for (int i = 0; i < rounds(20); ++i) {
      const RandomBlocks blocks(choice, static_cast<std::size_t>(context.size()));
      const bool overlap = choice.coin();
      const std::size_t sent = blocks.sent(rank);
      const std::size_t received = blocks.received(rank);
      Member member(context, overlap ? std::max(sent, received) : sent, received);
      const std::vector<Block> from = blocks.list(rank, true, member.from.slice(0, sent), own);
      const Slice target = overlap ? member.from.slice(0, received) : member.to;
      const std::vector<Block> to = blocks.list(rank, false, target, own);
      Collective all = alltoall(context, kName, from, to);
      const auto stamp = [](std::size_t source, std::size_t of, Tag tag, std::uint64_t round) {
        return Stamp{static_cast<Rank>(source), tag, round * 100 + of};
      };
      for (std::uint64_t round = 1; round <= 3; ++round) {
        member.once(
            all,
            [&, round] {
              for (const Block& block : from)
                fill(bytes_of(block.slice), stamp(rank, static_cast<std::size_t>(block.peer), block.tag, round));
            },
            [&, round] {
              for (const Block& block : to)
                EXPECT_EQ(difference(bytes_of(block.slice),
                                     stamp(static_cast<std::size_t>(block.peer), rank, block.tag, round)),
                          "");
            });
      }
      member.end();
    }
  });
}

// ---- combining numbers

template <class T>
std::span<T> numbers(const Slice& slice) {
  return {reinterpret_cast<T*>(slice.data()), slice.bytes() / sizeof(T)};
}

std::uint64_t number_of(std::size_t rank, std::size_t i) { return (rank + 3) * 1'000'003 + i * 7919; }

std::uint64_t combined(Op op, std::uint64_t first, std::uint64_t second) {
  switch (op) {
    case Op::sum: return first + second;
    case Op::product: return first * second;
    case Op::min: return std::min(first, second);
    case Op::max: return std::max(first, second);
    case Op::bit_and: return first & second;
    case Op::bit_or: return first | second;
    case Op::bit_xor: return first ^ second;
    case Op::replace: break;
  }
  return second;
}

/// Of ranks 0 to `last`.
std::uint64_t expected(Op op, std::size_t last, std::size_t i) {
  std::uint64_t result = number_of(0, i);
  for (std::size_t rank = 1; rank <= last; ++rank) result = combined(op, result, number_of(rank, i));
  return result;
}

TEST_P(Collectives, combine_numbers_as_one_rank_would) {
  run_peers(on_two_nodes(), [](Context& context) {
    const Op ops[] = {Op::sum, Op::product, Op::min, Op::max, Op::bit_and, Op::bit_or, Op::bit_xor};
    Choice choice(random_seed());
    for (const Op op : ops) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{13}, std::size_t{2500}}) {
        const auto size = static_cast<std::size_t>(context.size());
        Member member(context, count * 8, count * 8);
        const bool in_place = choice.below(2) == 0;
        const Slice to = in_place ? member.from : member.to;
        const auto root = static_cast<Rank>(choice.below(size));
        constexpr const char* kWays[] = {"recursive doubling", "shares", "lanes"};
        constexpr const char* kWaysUp[] = {"binomial tree", "shares", "level tree"};
        const std::size_t chosen = choice.below(std::size(kWays));
        const char* const way = count == 0 ? "" : kWays[chosen];
        const char* const way_up = count == 0 ? "" : kWaysUp[chosen];
        Collective every = allreduce(context, "every", op, Number::uint64, member.from, to, {.algorithm = way});
        Collective up = reduce(context, "up", op, Number::uint64, member.from, context.rank() == root ? to : Slice(),
                               root, {.algorithm = way_up});
        Collective prefix = scan(context, "prefix", op, Number::uint64, member.from, to);
        const auto fill_in = [&, count] {
          for (std::size_t i = 0; i < count; ++i) numbers<std::uint64_t>(member.from)[i] = number_of(member.rank(), i);
        };
        const auto expect = [&, op, count](std::size_t last) {
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(numbers<std::uint64_t>(to)[i], expected(op, last, i)) << way << i << ", operation " << int(op);
        };
        for (int round = 0; round < 2; ++round) {
          member.once(every, fill_in, [&] { expect(size - 1); });
          member.once(up, fill_in, [&] {
            if (context.rank() == root) expect(size - 1);
          });
          member.once(prefix, fill_in, [&] { expect(member.rank()); });
        }
        member.end();
      }
    }
  });
}

/// Half of the ranks have numbers of one owner, as those that share a GPU: each combines a slice of them in place, with
/// the rank at its place in the other half.
TEST_P(Collectives, combine_slices_of_memory_that_ranks_share) {
  if (GetParam().ground.name != "threads" && (GetParam().ground.name != "shm" || GetParam().user)) return;
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kSlice = 3000;
    const int half = context.size() / 2;
    const bool second = context.rank() >= half;
    const Rank owner = second ? half : 0;
    const int place = context.rank() - owner;
    const auto slices = static_cast<std::size_t>(std::max(1, half));
    Member member(context, slices * kSlice * 8, 8);
    Window window;
    if (context.rank() == owner) window = context.window("numbers", member.from);
    Target target = context.target(owner, "numbers");
    const Region shared = target.mapped();
    Collective together = barrier(context, "together");
    std::vector<Rank> lane{place};
    if (half > 0) lane.push_back(half + place);
    const bool works = static_cast<std::size_t>(place) < slices;
    std::optional<Collective> sum;
    std::optional<Context> among;
    if (works) {
      among.emplace(context.sub(lane));
      const Slice slice = shared.slice(static_cast<std::size_t>(place) * kSlice * 8, kSlice * 8);
      sum.emplace(allreduce(*among, "lane", Op::sum, Number::uint64, slice, slice, {.algorithm = "shares"}));
    }
    const auto numbers_here = numbers<std::uint64_t>(member.from);
    for (std::uint64_t round = 1; round <= 3; ++round) {
      member.once(
          together,
          [&, round] {
            for (std::size_t i = 0; context.rank() == owner && i < numbers_here.size(); ++i)
              numbers_here[i] = number_of(static_cast<std::size_t>(owner), i) + round;
          },
          [] {});
      if (works)
        member.once(
            *sum, [] {}, [] {});
      member.once(
          together, [] {},
          [&, round] {
            for (std::size_t i = 0; context.rank() == owner && i < numbers_here.size(); ++i) {
              const std::uint64_t of_second = number_of(static_cast<std::size_t>(half), i) + round;
              ASSERT_EQ(numbers_here[i], half == 0 ? number_of(0, i) + round : number_of(0, i) + round + of_second);
            }
          });
    }
    member.end();
  });
}

TEST_P(Collectives, scatter_sums_of_shares_of_any_size) {
  run_peers(peers(), [](Context& context) {
    Choice choice(random_seed());
    for (int i = 0; i < rounds(4); ++i) {
      const auto size = static_cast<std::size_t>(context.size());
      std::vector<std::size_t> bytes(size);
      for (auto& of : bytes) of = choice.below(4) * 808;
      const auto own = static_cast<std::size_t>(context.rank());
      const std::size_t begin = std::accumulate(bytes.begin(), bytes.begin() + context.rank(), std::size_t{0});
      const std::size_t all = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
      Member member(context, all, bytes[own]);
      Collective sums = reduce_scatter(context, kName, Op::sum, Number::uint64, member.from, member.to, bytes);
      for (int round = 0; round < 3; ++round) {
        member.once(
            sums,
            [&] {
              for (std::size_t k = 0; k < all / 8; ++k) numbers<std::uint64_t>(member.from)[k] = number_of(own, k);
            },
            [&] {
              for (std::size_t k = 0; k < bytes[own] / 8; ++k)
                ASSERT_EQ(numbers<std::uint64_t>(member.to)[k], expected(Op::sum, size - 1, begin / 8 + k));
            });
      }
      member.end();
    }
  });
}

/// A hash of the bits.
std::uint64_t hash_of(const Slice& slice) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const std::byte byte : bytes_of(slice)) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211ULL;
  return hash;
}

TEST_P(Collectives, give_all_ranks_the_same_bits) {
  if (hidden_from_tsan()) return;
  run_peers(on_two_nodes(), [](Context& context) {
    constexpr std::size_t kCount = 3000;
    constexpr std::size_t kHashes = 20;  // on the board: of rank 0
    std::size_t turn = 0;
    for (const char* algorithm : {"shares", "recursive doubling", "lanes"}) {
      Member member(context, kCount * 8, kCount * 8);
      Collective sums =
          allreduce(context, kName, Op::sum, Number::float64, member.from, member.to, {.algorithm = algorithm});
      std::vector<std::uint64_t> hashes;
      for (int round = 0; round < 3; ++round, ++turn) {
        member.once(
            sums,
            [&] {
              std::mt19937_64 random(member.rank() + 1);
              std::uniform_real_distribution<double> any(-1e6, 1e6);
              for (double& number : numbers<double>(member.from)) number = any(random);
              numbers<double>(member.from)[5] = std::numeric_limits<double>::infinity();
              numbers<double>(member.from)[6] = std::nan(std::to_string(member.rank()).c_str());
            },
            [] {});
        member.end();
        const std::uint64_t hash = hash_of(member.to);
        if (context.rank() == 0) board().set(kHashes + turn, hash);
        board().meet(context);
        EXPECT_EQ(board().word(kHashes + turn).load(), hash);
        hashes.push_back(hash);
        EXPECT_EQ(hashes.front(), hash) << "from run to run";
      }
    }
  });
}

// Written by hand: as IEEE 754 binary16 and as bfloat16.
constexpr std::uint16_t kHalfOne = 0x3C00;
constexpr std::uint16_t kHalfLeast = 0x0001;  // 2^-24
constexpr std::uint16_t kBrainOne = 0x3F80;

TEST_P(Collectives, sum_numbers_of_16_bits_in_float) {
  run_peers(peers(), [](Context& context) {
    const auto size = static_cast<std::size_t>(context.size());
    Member member(context, 8, 8);
    Collective half = allreduce(context, "half", Op::sum, Number::float16, member.from, member.to);
    Collective brain = allreduce(context, "brain", Op::sum, Number::bfloat16, member.from, member.to);
    // One rank has 2048, where float16 has steps of 2: ones that are added one by one in float16 would vanish.
    member.once(
        half,
        [&] {
          const auto mine = numbers<std::uint16_t>(member.from);
          mine[0] = member.rank() == 0 ? 0x6800 : kHalfOne;  // 2048
          mine[1] = kHalfLeast;
          mine[2] = 0x7BFF;  // 65504, the largest
          mine[3] = 0x8000;  // -0
        },
        [&] {
          const auto sums = numbers<std::uint16_t>(member.to);
          const auto ones = static_cast<double>(size - 1);
          const auto steps = static_cast<std::uint16_t>(std::nearbyint(ones / 2));
          EXPECT_EQ(sums[0], 0x6800 + steps);
          EXPECT_EQ(sums[1], size);
          EXPECT_EQ(sums[2], size == 1 ? 0x7BFF : 0x7C00);
          EXPECT_EQ(sums[3], 0x8000);
        });
    member.once(
        brain,
        [&] {
          const auto mine = numbers<std::uint16_t>(member.from);
          mine[0] = member.rank() == 0 ? 0x4380 : kBrainOne;  // 256, where bfloat16 has steps of 2
          mine[1] = 0x7FC1;                                   // NaN
          mine[2] = mine[3] = 0;
        },
        [&] {
          const auto sums = numbers<std::uint16_t>(member.to);
          const auto steps = static_cast<std::uint16_t>(std::nearbyint(static_cast<double>(size - 1) / 2));
          EXPECT_EQ(sums[0], 0x4380 + steps);
          EXPECT_EQ(sums[1] & 0x7FC0, 0x7FC0);
        });
    member.end();
  });
}

// ---- who waits for whom

/// Each rank starts them in an order of its own, and waits for them in one, if they have streams of their own.
void start_in_any_order(Progress progress) {
  run_peers(Collectives::peers(), [progress](Context& context) {
    constexpr std::size_t kMany = 4;
    constexpr std::size_t kBytes = 20'000;
    const auto size = static_cast<std::size_t>(context.size());
    Member member(context, kMany * kBytes * size, kMany * kBytes * size);
    std::vector<Collective> all;
    const auto piece = [&](const Slice& of, std::size_t i) { return of.slice(i * kBytes * size, kBytes * size); };
    for (std::size_t i = 0; i < kMany; ++i)
      all.push_back(alltoall(context, "number " + std::to_string(i), piece(member.from, i), piece(member.to, i),
                             {.progress = progress}));
    Choice choice(random_seed() + member.rank());
    for (std::uint64_t round = 1; round <= 5; ++round) {
      member.order.run([&, round] {
        for (std::size_t k = 0; k < kMany * size; ++k)
          fill(part(member.from, k * kBytes, kBytes), {context.rank(), static_cast<Tag>(k), round});
      });
      std::vector<std::size_t> order(kMany);
      std::iota(order.begin(), order.end(), 0);
      const auto shuffle = [&] {
        for (std::size_t i = 1; i < kMany; ++i) std::swap(order[i], order[choice.below(i + 1)]);
      };
      shuffle();
      for (const std::size_t i : order) all[i].start(member.stream());
      if (progress == Progress::own_stream)
        shuffle();
      else
        std::iota(order.begin(), order.end(), 0);
      for (const std::size_t i : order) all[i].wait(member.stream());
      member.order.run([&, round] {
        for (std::size_t k = 0; k < kMany * size; ++k) {
          const Stamp stamp{static_cast<Rank>(k % size), static_cast<Tag>(k / size * size + member.rank()), round};
          EXPECT_EQ(difference(part(member.to, k * kBytes, kBytes), stamp), "");
        }
      });
    }
    member.end();
  });
}

TEST_P(Exchanges, may_be_started_in_any_order) { start_in_any_order(Progress::in_wait); }
TEST_P(Collectives, with_streams_of_their_own_may_be_waited_for_in_any_order) {
  start_in_any_order(Progress::own_stream);
}

TEST_P(Collectives, with_a_stream_of_their_own_go_on_while_a_rank_computes) {
  if (GetParam().ranks < 4) return;
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kDone = 10;  // on the board
    Member member(context, 64, 0);
    // In the tree of rank 0, rank 2 is the parent of rank 3.
    Collective all = broadcast(context, kName, member.from, 0, {.progress = Progress::own_stream});
    for (std::uint64_t round = 1; round <= 3; ++round) {
      member.order.run([&, round] {
        if (context.rank() == 0) fill(bytes_of(member.from), {0, kTag, round});
      });
      all.start(member.stream());
      if (context.rank() == 2) board().await(kDone, round);  // computes until rank 3 has its data
      all.wait(member.stream());
      member.end();
      EXPECT_EQ(difference(bytes_of(member.from), {0, kTag, round}), "");
      if (context.rank() == 3) board().word(kDone).fetch_add(1);
      board().meet(context);
    }
  });
}

TEST_P(Exchanges, wait_for_nobody_who_has_nothing_for_them) {
  if (GetParam().ranks < 3) return;
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kDone = 10;  // on the board
    Member member(context, 64, 64);
    // Rank 0 sends to rank 1, and rank 1 to rank 2.
    std::vector<Block> from;
    std::vector<Block> to;
    if (context.rank() < 2) from.push_back({context.rank() + 1, 0, member.from});
    if (context.rank() == 1 || context.rank() == 2) to.push_back({context.rank() - 1, 0, member.to});
    Collective all = alltoall(context, kName, from, to);
    if (context.rank() == 0) board().await(kDone, 1);  // late
    all.start(member.stream());
    all.wait(member.stream());
    member.end();
    if (context.rank() == 2) board().set(kDone, 1);
  });
}

TEST_P(Collectives, can_be_tested) {
  if (hidden_from_tsan()) return;
  run_peers(peers(), [](Context& context) {
    Member member(context, 8, 8);
    for (const Progress progress : {Progress::in_wait, Progress::own_stream}) {
      Collective sum =
          allreduce(context, kName, Op::sum, Number::uint64, member.from, member.to, {.progress = progress});
      for (int round = 0; round < 3; ++round) {
        numbers<std::uint64_t>(member.from)[0] = 1;
        sum.start({});
        const auto until = Clock::now() + 30s;
        while (!sum.test()) ASSERT_LT(Clock::now(), until);
        EXPECT_EQ(numbers<std::uint64_t>(member.to)[0], member.size());
      }
    }
  });
}

// ---- ends

/// Streams may still have work of them.
TEST_P(Collectives, may_be_destroyed_and_closed_behind_their_last_wait) {
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kCount = 4096;
    for (const Progress progress : {Progress::in_wait, Progress::own_stream}) {
      for (const bool closes : {false, true}) {
        Member member(context, kCount * 2, kCount * 2);
        const Number number = closes ? Number::float16 : Number::bfloat16;
        std::optional<Collective> sums =
            scan(context, kName, Op::sum, number, member.from, member.to, {.progress = progress});
        member.order.run(
            [&] { std::ranges::fill(numbers<std::uint16_t>(member.from), closes ? kHalfOne : kBrainOne); });
        sums->start(member.stream());
        sums->wait(member.stream());
        if (closes) sums->close();
        sums.reset();
        member.end();
        const auto first = numbers<std::uint16_t>(member.to)[0];
        constexpr std::uint16_t kHalves[] = {0x3C00, 0x4000, 0x4200, 0x4400, 0x4500};
        constexpr std::uint16_t kBrains[] = {0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0};
        EXPECT_EQ(first, (closes ? kHalves : kBrains)[member.rank()]);
        EXPECT_EQ(numbers<std::uint16_t>(member.to)[kCount - 1], first);
      }
    }
  });
}

/// Without peers, no channel awaits the stream.
TEST_P(Collectives, are_not_closed_before_the_stream_has_copied) {
  if (!GetParam().host || GetParam().ranks != 1) return;
  run_peers(peers(), [](Context& context) {
    for (const Number number : {Number::float64, Number::float16}) {  // one step, and several
      Member member(context, 64, 64);
      Collective sum = allreduce(context, kName, Op::sum, number, member.from, member.to);
      std::atomic<bool> opened{false};
      sum.start(member.stream());
      member.order.run([&] {
        while (!opened) std::this_thread::yield();
      });
      sum.wait(member.stream());
      expect_code(Code::timeout, [&] { sum.close(std::chrono::milliseconds(50)); });
      opened = true;
      sum.close();
    }
  });
}

/// The root has closed, so that a later round throws with some of its steps enqueued.
TEST_P(Collectives, are_not_closed_before_what_a_refused_round_has_enqueued) {
  if (!GetParam().host || GetParam().ranks < 2) return;
  Peers all = peers();
  all.untold = true;  // of the failure only its reason is thrown
  run_peers(all, [](Context& context) {
    constexpr std::size_t kBytes = 64;
    constexpr int kLandings = 3;
    Member member(context, kBytes, kBytes);
    std::ranges::fill(numbers<std::uint16_t>(member.from), kHalfOne);
    const bool is_leaf = member.rank() + 1 == member.size();
    Collective sum = reduce(context, kName, Op::sum, Number::float16, member.from, member.to, 0);
    for (int i = 0; i < kLandings; ++i) {
      sum.start(member.stream());
      sum.wait(member.stream());
    }
    member.end();
    if (!is_leaf) sum.close();
    board().meet(context);
    if (!is_leaf) return;
    std::atomic<int> opened{0};
    int round = 0;
    const auto wait_behind_a_gate = [&] {
      ++round;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the root's closing may come to be known
      try {
        sum.start(member.stream());
        member.order.run([&opened, round] {
          while (opened < round) std::this_thread::yield();
        });
        sum.wait(member.stream());
        return true;
      } catch (const Error&) {
        return false;
      }
    };
    while (wait_behind_a_gate()) opened = round;
    expect_code(Code::timeout, [&] { sum.close(std::chrono::milliseconds(50)); });
    opened = round;
    sum.close();
  });
}

TEST_P(Collectives, let_a_rank_be_two_rounds_ahead) {
  if (GetParam().ranks < 2) return;
  run_peers(peers(), [](Context& context) {
    constexpr std::size_t kDone = 10;  // on the board
    Member member(context, 64, 0);
    Collective all = broadcast(context, kName, member.from, 0);
    all.wait_connected();
    if (context.rank() == 0) {
      for (int round = 0; round < 2; ++round) {
        all.start(member.stream());
        all.wait(member.stream());
      }
      member.end();
      board().set(kDone, 1);
      return;
    }
    if (context.rank() != 1) board().await(kDone, 1);
    if (context.rank() == 1 && context.size() == 2) board().await(kDone, 1);
    for (int round = 0; round < 2; ++round) {
      all.start(member.stream());
      all.wait(member.stream());
    }
    member.end();
  });
}

// ---- mistakes

TEST_P(Collectives, refuse_what_is_wrong) {
  run_peers(peers(), [](Context& context) {
    Member member(context, 64, 64);
    const auto refused = [](auto make) { expect_code(Code::bad_argument, make); };
    const Slice from = member.from;
    const Slice to = member.to;
    refused([&] { (void)barrier(context, ""); });
    refused([&] { (void)barrier(context, kName, {.algorithm = "magic"}); });
    refused([&] { (void)broadcast(context, kName, from, context.size()); });
    refused([&] { (void)gather(context, kName, from, to.slice(0, 63), context.rank()); });
    refused([&] { (void)allreduce(context, kName, Op::bit_or, Number::float64, from, to); });
    refused([&] { (void)allreduce(context, kName, Op::replace, Number::int32, from, to); });
    refused([&] { (void)allreduce(context, kName, Op::sum, Number::int32, from.slice(0, 6), to.slice(0, 6)); });
    refused([&] { (void)allreduce(context, kName, Op::sum, Number::int32, from, to.slice(0, 8)); });
    refused([&] { (void)allreduce(context, kName, Op::sum, Number::int32, from.slice(0, 8), from.slice(4, 8)); });
    refused([&] { (void)reduce_scatter(context, kName, Op::sum, Number::int64, from, to.slice(0, 63)); });
    refused([&] { (void)alltoall(context, kName, std::vector<Block>{{-1, 0, from}}, {}); });
    const Rank own = context.rank();
    const std::vector<Block> twice{{own, 0, from.slice(0, 8)}, {own, 0, from.slice(8, 8)}};
    refused([&] { (void)alltoall(context, kName, twice, std::vector<Block>{{own, 0, to.slice(0, 8)}}); });
    const std::vector<Block> longer{{own, 0, from}};
    refused([&] { (void)alltoall(context, kName, longer, std::vector<Block>{{own, 0, to.slice(0, 8)}}); });
    refused([&] { (void)alltoall(context, kName, longer, {}); });
    refused([&] { (void)allgather(context, kName, to.slice(4, 32 / context.size() * 2), to.slice(0, 64)); });
    const auto misused = [](auto call) { expect_code(Code::misuse, call); };
    Collective empty;
    misused([&] { empty.start({}); });
    Collective all = allreduce(context, kName, Op::sum, Number::uint64, from, to);
    misused([&] { all.wait({}); });
    all.start({});
    misused([&] { all.start({}); });
    if (context.size() > 1) misused([&] { (void)allreduce(context, kName, Op::sum, Number::uint64, from, to); });
    all.wait({});
    HostStream other;
    misused([&] { all.start(Stream::host(other)); });
    all.close();
    all.close();
    misused([&] { all.start({}); });
    EXPECT_NE(all.describe().find("recursive doubling"), std::string::npos) << all.describe();
  });
}

/// One limit holds for all ranks, of which the last is late and rank 1 later.
TEST_P(Collectives, that_a_rank_has_not_made_name_the_limit) {
  if (GetParam().ranks < 3) return;
  run_peers(peers(), [](Context& context) {
    Member member(context, 64, 8 * static_cast<std::size_t>(context.size()));
    if (context.rank() == context.size() - 1) std::this_thread::sleep_for(20ms);
    if (context.rank() == 1) board().await(kGo, 1);
    Collective all = gather(context, kName, member.from.slice(0, 8), context.rank() == 0 ? member.to : Slice(), 0);
    if (context.rank() == 0) {
      const auto error = expect_code(Code::timeout, [&] { all.wait_connected(100ms); });
      EXPECT_NE(std::string(error->what()).find("not connected after 100 ms"), std::string::npos) << error->what();
      board().set(kGo, 1);
    }
    all.wait_connected();
    board().meet(context);
  });
}

TEST_P(Collectives, find_ranks_that_disagree) {
  if (GetParam().ranks != 2) return;
  run_peers(with_untold(peers()), [](Context& context) {
    Member member(context, 64, 64);
    const Op op = context.rank() == 0 ? Op::sum : Op::max;
    Collective all = allreduce(context, kName, op, Number::uint64, member.from, member.to);
    expect_code(Code::mismatch, [&] { all.wait_connected(); });
    Collective one = broadcast(context, "root", member.from, 0, {.algorithm = context.rank() == 0 ? "shares" : ""});
    Collective other =
        allreduce(context, "bytes", Op::sum, Number::uint64, member.from.slice(0, context.rank() == 0 ? 64 : 32),
                  member.to.slice(0, context.rank() == 0 ? 64 : 32));
    expect_code(Code::mismatch, [&] { other.wait_connected(); });
    board().meet(context);
  });
}

/// Each rank has a file of its own, in which another algorithm is the fastest, or the same.
TEST_P(Collectives, find_ranks_whose_models_disagree) {
  if (GetParam().ranks != 2 || !GetParam().ground.processes) return;
  run_peers(with_untold(peers()), [](Context& context) {
    const std::string file = "/tmp/sluice-model-" + std::to_string(::getpid());
    std::ofstream(file) << "mapped.L = 100.00000" << context.rank() << "\nnetwork.L = 5\n";
    ::setenv("SLUICE_MODEL", file.c_str(), 1);
    Member member(context, 64, 64);
    Collective all = allreduce(context, kName, Op::sum, Number::uint64, member.from, member.to);
    EXPECT_NE(all.describe().find(file), std::string::npos) << all.describe();
    expect_code(Code::mismatch, [&] { all.wait_connected(); });
    ::setenv("SLUICE_MODEL", "/nowhere", 1);
    expect_code(Code::bad_argument, [&] { (void)barrier(context, "none"); });
    std::filesystem::remove(file);
    board().meet(context);
  });
}

// ---- ranks that die

class LostMembers : public WithKills {};

constexpr std::size_t kMemberBytes = 5 * 20'000;  // of five ranks, which send each other long messages

/// The dead rank has finished a collective, or has started it.
enum class Died : std::uint8_t { between_rounds, after_start };

/// All others end, also those that have messages of the dead rank only by way of others. `make(context, memory)`.
template <class Make>
void rank_1_dies(const Case& one, Died died, Make make) {
  Case of_five = one;
  of_five.ranks = 5;
  Peers peers = of_five.peers();
  peers.keep_going = peers.untold = true;
  peers.limit = 90s;
  const Ended ended = end_of_peers(peers, [one, died, make](Context& context) {
    constexpr std::size_t kLeft = 11;
    test::Order order(one);
    const Buffer memory(context, one, 2 * kMemberBytes);
    Collective all = make(context, memory.all());
    all.start(order.stream());
    all.wait(order.stream());
    context.synchronize(order.stream());
    if (context.rank() == 1 && died == Died::after_start) all.start(order.stream());
    board().word(kReady).fetch_add(1);
    if (context.rank() == 1) die_when_ready(5);
    board().await(kReady, 5);
    const auto go_on = [&] {  // a rank that the dead one owes nothing may pass some rounds
      for (;;) {
        all.start(order.stream());
        all.wait(order.stream());
        context.synchronize(order.stream());
      }
    };
    expect_released([&] { expect_code(Code::peer_lost, go_on); }, 0ms, kNoticed);
    expect_code(Code::peer_lost, go_on);
    // Of one death, `check` throws once at most.
    try {
      context.check();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_lost);
    }
    EXPECT_NO_THROW(context.check());
    board().word(kLeft).fetch_add(1);
    board().await(kLeft, 4);  // a rank that leaves would end the others' waits
  });
  expect_only_rank_1_killed(ended);
}

void rank_1_of_a_sum_dies(Progress progress) {
  rank_1_dies(LostMembers::GetParam(), Died::between_rounds, [progress](Context& context, const Slice& memory) {
    const Slice numbers = memory.slice(0, 64);
    return allreduce(context, kName, Op::sum, Number::uint64, numbers, numbers, {.progress = progress});
  });
}

TEST_P(LostMembers, release_all_ranks) { rank_1_of_a_sum_dies(Progress::in_wait); }
TEST_P(LostMembers, release_all_ranks_whose_collectives_have_streams) { rank_1_of_a_sum_dies(Progress::own_stream); }

void rank_1_of_an_exchange_dies(Died died) {
  rank_1_dies(LostMembers::GetParam(), died, [](Context& context, const Slice& memory) {
    return alltoall(context, kName, memory.slice(0, kMemberBytes), memory.slice(kMemberBytes, kMemberBytes),
                    {.algorithm = "puts"});
  });
}

TEST_P(LostMembers, release_all_ranks_that_wait_until_it_is_ready) { rank_1_of_an_exchange_dies(Died::between_rounds); }
TEST_P(LostMembers, release_all_ranks_that_wait_for_its_long_blocks) { rank_1_of_an_exchange_dies(Died::after_start); }

/// Rank 1 is in the middle of the tree of rank 4, which waits until it is ready, and has a child, which waits for data.
void rank_1_of_a_broadcast_dies(Died died) {
  rank_1_dies(LostMembers::GetParam(), died, [](Context& context, const Slice& memory) {
    return broadcast(context, kName, memory.slice(0, kMemberBytes), 4, {.algorithm = "binomial tree"});
  });
}

TEST_P(LostMembers, release_all_ranks_of_a_broadcast) { rank_1_of_a_broadcast_dies(Died::between_rounds); }
TEST_P(LostMembers, release_all_ranks_of_a_broadcast_that_it_has_started) {
  rank_1_of_a_broadcast_dies(Died::after_start);
}

/// With GPUs, if the filter of this run names them: no malloc'ed memory, which the driver takes only while no stream
/// waits.
std::vector<Case> with_gpus(const std::vector<int>& ranks) {
  std::vector<Case> all = memory_cases();  // with the networks that are named
  for (const Case& one : on(all_grounds(), memory_cases())) all.push_back(one);
  std::set<std::string> names;
  std::erase_if(all, [&](const Case& one) {
    return (one.cuda && (one.ground.network || one.ground.polled)) || !names.insert(one.name()).second;
  });
  all = with_ranks(all, ranks);
  std::erase_if(all, [](const Case& one) { return one.cuda && one.user; });
  return all;
}

std::vector<Case> without_gpus(const std::vector<int>& ranks) {
  std::vector<Case> all = with_gpus(ranks);
  std::erase_if(all, [](const Case& one) { return one.cuda; });
  return all;
}

std::vector<Case> of_processes_alone() {
  std::vector<Case> all = without_gpus({2});
  std::erase_if(all, [](const Case& one) { return !one.ground.processes || one.user; });
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, Exchanges, testing::ValuesIn(with_gpus({1, 2, 3, 5})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Exchanges, full_cases([] { return with_gpus({4, 6, 7, 8, 9, 12, 16}); }), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, Collectives, testing::ValuesIn(without_gpus({1, 2, 3, 5})), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Collectives, full_cases([] {
                           return without_gpus({4, 6, 7, 8, 9, 12, 16});
                         }),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, LostMembers, testing::ValuesIn(of_processes_alone()), CaseName());

}  // namespace
