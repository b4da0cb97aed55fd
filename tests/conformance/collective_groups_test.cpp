// SPDX-License-Identifier: Apache-2.0
// Collectives of groups: tests between start and wait, groups that overlap, many ranks, ranks that throw, NaNs.
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/cases.hpp"
#include "tests/conformance/released.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kGroupDone = 10;  // on the board

class CollectiveGroups : public testing::TestWithParam<Case> {
 public:
  static Peers peers(int ranks) {
    Case one = GetParam();
    one.ranks = ranks;
    Peers peers = one.peers();
    peers.limit = 90s;
    return peers;
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CollectiveGroups);

template <class T>
std::span<T> group_numbers(const Slice& slice) {
  return {reinterpret_cast<T*>(slice.data()), slice.bytes() / sizeof(T)};
}

// ---- tests between start and wait

/// In the tree of rank 0, rank 2 is the parent of rank 3, and calls `wait` only once that rank has its data.
TEST_P(CollectiveGroups, go_on_while_a_rank_that_computes_tests_them) {
  if (GetParam().host) return;
  run_peers(peers(4), [](Context& context) {
    const Buffer memory(context, GetParam(), 64);
    Collective all = broadcast(context, "data", memory.all(), 0, {.algorithm = "binomial tree"});
    for (std::uint64_t round = 1; round <= 5; ++round) {
      if (context.rank() == 0) fill(memory.bytes(), {0, 1, round});
      all.start({});
      const auto until = Clock::now() + 30s;
      while (context.rank() == 2 && board().word(kGroupDone) < round) {
        ASSERT_LT(Clock::now(), until);
        (void)all.test();
      }
      all.wait({});
      EXPECT_EQ(difference(memory.bytes(), {0, 1, round}), "");
      if (context.rank() == 3) board().set(kGroupDone, round);
      board().meet(context);
    }
  });
}

TEST_P(CollectiveGroups, that_a_test_has_completed_may_be_tested_and_waited_for) {
  if (GetParam().host) return;
  run_peers(peers(3), [](Context& context) {
    const Buffer memory(context, GetParam(), 8);
    for (const Progress progress : {Progress::in_wait, Progress::own_stream}) {
      Collective sum =
          allreduce(context, "sum", Op::sum, Number::uint64, memory.all(), memory.all(), {.progress = progress});
      const auto result = group_numbers<std::uint64_t>(memory.all());
      for (int round = 0; round < 4; ++round) {
        result[0] = 1;
        sum.start({});
        const auto until = Clock::now() + 30s;
        while (!sum.test()) ASSERT_LT(Clock::now(), until);
        EXPECT_EQ(result[0], 3U);
        if (round % 2 == 0) continue;  // the next start may follow
        EXPECT_TRUE(sum.test());
        sum.wait({});
        EXPECT_EQ(result[0], 3U) << "combined twice";
        expect_code(Code::misuse, [&] { sum.wait({}); });
        expect_code(Code::misuse, [&] { (void)sum.test(); });
      }
    }
  });
}

/// The other rank has closed its collective, and has ended.
TEST_P(CollectiveGroups, that_a_test_has_completed_are_waited_for_without_the_others) {
  if (GetParam().host) return;
  run_peers(with_untold(peers(2)), [](Context& context) {
    const Buffer memory(context, GetParam(), 8);
    {
      Collective sum = allreduce(context, "sum", Op::sum, Number::uint64, memory.all(), memory.all());
      group_numbers<std::uint64_t>(memory.all())[0] = 1;
      sum.start({});
      const auto until = Clock::now() + 30s;
      while (!sum.test()) ASSERT_LT(Clock::now(), until);
      if (context.rank() == 0) {
        board().await(kGroupDone, 1);
        EXPECT_NO_THROW(sum.wait({}));
      } else {
        sum.close();
      }
    }
    board().set(kGroupDone, 1);
  });
}

// ---- groups that overlap

/// Each rank starts those that it is in, in an order of its own, and waits for them in one.
TEST_P(CollectiveGroups, that_overlap_are_started_in_any_order) {
  run_peers(peers(4), [](Context& context) {
    const std::vector<std::vector<Rank>> groups{{0, 1, 2, 3}, {0, 1, 2}, {3, 2, 0}, {1, 3}, {0, 1, 2}};
    constexpr std::size_t kGroupBytes = 24'000;
    const Case& one = GetParam();
    test::Order order(one);
    const Buffer memory(context, one, groups.size() * kGroupBytes);
    struct Part {
      Context context;
      Collective sum;
      Slice slice;
      std::uint64_t expected;
    };
    std::vector<Part> parts;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (std::ranges::find(groups[i], context.rank()) == groups[i].end()) continue;
      Context some = context.sub(groups[i]);
      const Slice slice = memory.all().slice(i * kGroupBytes, i % 2 == 0 ? kGroupBytes : 8);
      std::uint64_t expected = 0;
      for (const Rank rank : groups[i]) expected += static_cast<std::uint64_t>(rank) + 1;
      Collective sum = allreduce(some, "sum", Op::sum, Number::uint64, slice, slice);
      parts.push_back({std::move(some), std::move(sum), slice, expected});
    }
    for (std::uint64_t round = 1; round <= 5; ++round) {
      order.run([&, round] {
        for (const Part& part : parts)
          std::ranges::fill(group_numbers<std::uint64_t>(part.slice),
                            round * (static_cast<std::uint64_t>(context.rank()) + 1));
      });
      for (std::size_t i = 0; i < parts.size(); ++i)
        parts[(i + round + static_cast<std::size_t>(context.rank())) % parts.size()].sum.start(order.stream());
      for (Part& part : parts) part.sum.wait(order.stream());
      order.run([&, round] {
        for (const Part& part : parts)
          for (const std::uint64_t sum : group_numbers<std::uint64_t>(part.slice))
            ASSERT_EQ(sum, round * part.expected);
      });
    }
    context.synchronize(order.stream());
  });
}

// ---- many ranks

TEST_P(CollectiveGroups, of_more_ranks_than_cores_give_what_one_rank_would) {
  if (GetParam().ground.name != "threads" || GetParam().host) return;
  run_peers(peers(24), [](Context& context) {
    const auto size = static_cast<std::size_t>(context.size());
    const auto rank = static_cast<std::uint64_t>(context.rank());
    const Memory memory = context.allocate(size * 3 * 8);
    const Slice one = memory.slice(0, 8);
    const Slice from = memory.slice(size * 8, size * 8);
    const Slice to = memory.slice(2 * size * 8, size * 8);
    Collective together = barrier(context, "together");
    Collective given = broadcast(context, "given", one, 5, {.algorithm = "level tree"});
    Collective rounds =
        allreduce(context, "rounds", Op::sum, Number::uint64, one, one, {.algorithm = "recursive doubling"});
    Collective shares = allreduce(context, "shares", Op::max, Number::uint64, from, to, {.algorithm = "shares"});
    Collective turned = alltoall(context, "turned", from, to);
    for (std::uint64_t round = 1; round <= 2; ++round) {
      const auto first = group_numbers<std::uint64_t>(one);
      const auto result = group_numbers<std::uint64_t>(to);
      const auto once = [](Collective& all) {
        all.start({});
        all.wait({});
      };
      first[0] = rank;
      once(given);
      ASSERT_EQ(first[0], 5U);
      once(rounds);
      ASSERT_EQ(first[0], 5U * size);
      for (std::size_t i = 0; i < size; ++i) group_numbers<std::uint64_t>(from)[i] = round * (rank * size + i);
      once(shares);
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(result[i], round * ((size - 1) * size + i));
      once(together);
      once(turned);
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(result[i], round * (i * size + rank));
    }
  });
}

// ---- exceptions

/// Rank 1 leaves a scope by an exception, while the others wait for its numbers; none of them waits for it for ever.
TEST_P(CollectiveGroups, that_an_exception_destroys_fail_at_all_ranks) {
  for (const Progress progress : {Progress::in_wait, Progress::own_stream}) {
    run_peers(with_untold(peers(4)), [progress](Context& context) {
      test::Order order(GetParam());
      const Buffer memory(context, GetParam(), 64);
      try {
        Collective sum =
            allreduce(context, "sum", Op::sum, Number::uint64, memory.all(), memory.all(), {.progress = progress});
        sum.start(order.stream());
        sum.wait(order.stream());
        context.synchronize(order.stream());
        board().meet(context);
        if (context.rank() == 1) throw std::runtime_error("of the program");
        const auto once_more = [&] {
          sum.start(order.stream());
          sum.wait(order.stream());
          context.synchronize(order.stream());
        };
        expect_released([&] { expect_code(Code::peer_lost, once_more); }, 0ms, kNoticed);
        board().word(kGroupDone).fetch_add(1);
        board().await(kGroupDone, 3);  // a rank that leaves would end the others' waits
      } catch (const std::runtime_error& thrown) {
        EXPECT_STREQ(thrown.what(), "of the program");
        board().await(kGroupDone, 3);
      }
    });
  }
}

// ---- NaNs

/// The result is a NaN wherever a number of some rank is one, of all types, in each algorithm.
TEST_P(CollectiveGroups, keep_nans_in_minima_and_maxima) {
  run_peers(peers(3), [](Context& context) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr std::size_t kNanCount = 4;  // the number of rank i, i < 3, is a NaN at place i
    const auto rank = static_cast<std::size_t>(context.rank());
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), kNanCount * 8);
    for (const char* const algorithm : {"recursive doubling", "shares"}) {
      for (const Op op : {Op::min, Op::max}) {
        Collective wide =
            allreduce(context, "double", op, Number::float64, memory.all(), memory.all(), {.algorithm = algorithm});
        order.run([&] {
          for (std::size_t i = 0; i < kNanCount; ++i)
            group_numbers<double>(memory.all())[i] = i == rank ? double{kNan} : static_cast<double>(rank + i);
        });
        wide.start(order.stream());
        wide.wait(order.stream());
        order.run([&] {
          const auto results = group_numbers<double>(memory.all());
          for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(results[i])) << algorithm << ", " << i;
          EXPECT_EQ(results[3], op == Op::min ? 3 : 5);
        });
        context.synchronize(order.stream());

        const Slice halves = memory.all().slice(0, kNanCount * 2);
        Collective narrow = allreduce(context, "half", op, Number::bfloat16, halves, halves, {.algorithm = algorithm});
        order.run([&] {
          constexpr std::uint16_t kBrainNan = 0x7FC0;
          constexpr std::uint16_t kBrainOnes[] = {0x3F80, 0x4000, 0x4040};  // 1, 2, 3
          for (std::size_t i = 0; i < kNanCount; ++i)
            group_numbers<std::uint16_t>(halves)[i] = i == rank ? kBrainNan : kBrainOnes[rank];
        });
        narrow.start(order.stream());
        narrow.wait(order.stream());
        order.run([&] {
          const auto results = group_numbers<std::uint16_t>(halves);
          for (std::size_t i = 0; i < 3; ++i) EXPECT_GT(results[i] & 0x7FFFU, 0x7F80U) << algorithm << ", " << i;
          EXPECT_EQ(results[3], op == Op::min ? 0x3F80 : 0x4040);
        });
        context.synchronize(order.stream());
      }
    }
  });
}

// ---- the choice of algorithms

/// On one host, too, a network costs what a network costs.
TEST_P(CollectiveGroups, are_chosen_by_the_costs_of_the_backend_in_use) {
  if (GetParam().host) return;
  run_peers(peers(2), [](Context& context) {
    const Buffer memory(context, GetParam(), 64);
    Collective all = broadcast(context, "data", memory.all(), 0);
    const char* const costs = GetParam().ground.network ? "predicted for a network" : "predicted for mapped memory";
    EXPECT_NE(all.describe().find(costs), std::string::npos) << all.describe();
    all.start({});
    all.wait({});
  });
}

// ---- some of the ranks

/// The part of a description that says which links the costs are of.
bool crosses_nodes(const Collective& all) {
  return all.describe().find("predicted for a network") != std::string::npos;
}

/// SLUICE_TOPOLOGY is about the ranks of the job, however a context of some of them numbers them.
TEST_P(CollectiveGroups, of_some_ranks_are_on_the_nodes_of_the_job) {
  if (GetParam().host || GetParam().ground.network) return;
  for (const std::string nodes : {"2", "0,0,1,1"}) {
    Peers four = peers(4);
    four.environment.push_back("SLUICE_TOPOLOGY=" + nodes);
    run_peers(four, [](Context& context) {
      const Rank own = context.rank();
      const Buffer memory(context, GetParam(), 2 * 64);
      const auto exchange_by_nodes = [&](std::vector<Rank> ranks, bool crosses) {
        if (std::ranges::find(ranks, own) == ranks.end()) return;
        Context some = context.sub(ranks);
        const std::size_t bytes = 8 * ranks.size();
        const Slice from = memory.all().slice(0, bytes);
        const Slice to = memory.all().slice(64, bytes);
        Collective chosen = alltoall(some, "chosen", from, to);
        EXPECT_EQ(crosses_nodes(chosen), crosses) << chosen.describe();
        Collective all = alltoall(some, "all", from, to, {.algorithm = "node-aware"});
        for (std::size_t i = 0; i < ranks.size(); ++i)
          group_numbers<std::uint64_t>(from)[i] =
              10 * static_cast<std::uint64_t>(own) + static_cast<std::uint64_t>(ranks[i]);
        all.start({});
        all.wait({});
        for (std::size_t i = 0; i < ranks.size(); ++i)
          EXPECT_EQ(group_numbers<std::uint64_t>(to)[i], static_cast<std::uint64_t>(10 * ranks[i] + own));
      };
      exchange_by_nodes({3, 2}, false);
      exchange_by_nodes({2, 1}, true);
      exchange_by_nodes({3, 0, 1}, true);
      exchange_by_nodes({1, 3, 0, 2}, true);
    });
  }
}

TEST_P(CollectiveGroups, refuse_nodes_of_another_number_of_ranks) {
  if (GetParam().host || GetParam().ground.network) return;
  Peers two = peers(2);
  two.environment.emplace_back("SLUICE_TOPOLOGY=0,0,1");
  run_peers(two, [](Context& context) {
    expect_code(Code::bad_argument, [&] { (void)barrier(context, "all"); });
    Context alone = context.sub({context.rank()});
    expect_code(Code::bad_argument, [&] { (void)barrier(alone, "alone"); });
  });
}

// ---- what people read

/// In the first line, in brackets behind the name of the algorithm.
TEST_P(CollectiveGroups, say_why_they_go_as_they_do) {
  if (GetParam().host || GetParam().ground.name != "threads") return;
  run_peers(peers(2), [](Context& context) {
    const Memory memory = context.allocate(4 * 64);
    const auto piece = [&](std::size_t i, std::size_t bytes) { return memory.slice(i * 64, bytes); };
    const auto line = [](Collective all) { return all.describe().substr(0, all.describe().find('\n')); };
    const Block out{1 - context.rank(), 0, piece(0, 64)};
    const Block in{1 - context.rank(), 0, piece(1, 64)};
    const std::string lines[] = {
        line(barrier(context, "all")),
        line(broadcast(context, "all", piece(0, 64), 0)),
        line(gather(context, "all", piece(0, 32), piece(1, 64), 0)),
        line(scatter(context, "all", piece(1, 64), piece(0, 32), 0)),
        line(allgather(context, "all", piece(0, 32), piece(1, 64))),
        line(alltoall(context, "all", piece(0, 64), piece(1, 64))),
        line(alltoall(context, "blocks", std::span(&out, 1), std::span(&in, 1))),
        line(reduce(context, "all", Op::sum, Number::int32, piece(0, 64), piece(1, 64), 0)),
        line(allreduce(context, "all", Op::sum, Number::int32, piece(0, 64), piece(1, 64))),
        line(reduce_scatter(context, "all", Op::sum, Number::int32, piece(0, 64), piece(1, 32))),
        line(scan(context, "all", Op::sum, Number::int32, piece(0, 64), piece(1, 64)))};
    for (const std::string& one : lines) EXPECT_NE(one.find(" ("), std::string::npos) << one;
  });
}

/// In place, blocks that are long enough to be held back are copied nevertheless. On a network both are predicted to
/// take the same: messages follow each other so slowly that only one block is copied after the last has arrived.
TEST_P(CollectiveGroups, in_place_are_predicted_as_what_they_do) {
  if (GetParam().host || GetParam().ground.network) return;
  constexpr std::size_t kAll = 60'000;  // of 3 ranks: two blocks to copy in place, and one otherwise
  run_peers(peers(3), [](Context& context) {
    const Memory memory = context.allocate(2 * kAll);
    const auto predicted = [&](bool in_place) {
      const Slice from = memory.slice(0, kAll);
      const Collective all = alltoall(context, "all", from, in_place ? from : memory.slice(kAll, kAll));
      const std::string line = all.describe().substr(0, all.describe().find('\n'));
      const std::size_t begin = line.rfind(": puts ");
      return line.substr(begin, line.find_first_of(",)", begin) - begin);
    };
    EXPECT_NE(predicted(true), predicted(false));
  });
}

/// Other suites have more cases of networks and of streams of GPUs.
std::vector<Case> group_cases() {
  std::vector<Case> all = stream_cases();
  std::erase_if(all, [](const Case& one) { return one.cuda; });
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, CollectiveGroups, testing::ValuesIn(group_cases()), CaseName());

}  // namespace
