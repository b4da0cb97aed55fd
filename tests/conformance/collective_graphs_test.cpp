// SPDX-License-Identifier: Apache-2.0
// Collectives that are captured into graphs of a GPU's stream, and replayed.
#include <signal.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/conformance/gpu_cases.hpp"
#include "tests/conformance/released.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr int kRoundsOfGraph = 3;  // the fewest
constexpr Tag kGraphTag = 7;

class GpuCollectiveGraphs : public testing::TestWithParam<GpuCase> {
 public:
  static Peers peers(int ranks) {
    Peers peers = peers_of(GetParam(), ranks);
    peers.limit = 90s;
    // Streams of threads share the hardware queues of a process, where one that waits holds up those behind it.
    peers.environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS=32");
    return peers;
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuCollectiveGraphs);

/// A collective and its memory, which may be of a GPU. Functions of the stream stamp what each round sends, and look at
/// what it gets, by way of pinned memory.
class Rounds {
 public:
  Rounds(Context& context, std::size_t from_bytes, std::size_t to_bytes, bool in_place = false)
      : context_(context), in_place_(in_place), from_(context, GpuCollectiveGraphs::GetParam().source, from_bytes),
        to_(context, GpuCollectiveGraphs::GetParam().target, to_bytes),
        sent_(context.allocate(from_bytes, Space::pinned)), got_(context.allocate(to_bytes, Space::pinned)) {}

  const Slice& from() const { return in_place_ ? to_.slice() : from_.slice(); }
  const Slice& to() const { return to_.slice(); }

  /// The numbers of `rank` in a round, and what this rank is to have then.
  std::function<void(std::span<std::byte>, std::uint64_t)> stamp;
  std::function<std::string(std::span<const std::byte>, std::uint64_t)> look;
  Collective collective;

  /// A round in the order of the stream; in a graph, one of each replay.
  void enqueue() {
    const Stream s = gpu.stream();
    gpu.run([this] { stamp(bytes_of(sent_.all()), ++stamped_); });
    gpu.copy(from().data(), sent_.data(), sent_.bytes());
    collective.start(s);
    collective.wait(s);
    gpu.copy(got_.data(), to().data(), to().bytes());
    gpu.run([this] {
      ++looked_;
      if (const std::string wrong = look(bytes_of(got_.all()), looked_); !wrong.empty() && wrong_.empty())
        wrong_ = "round " + std::to_string(looked_) + ": " + wrong;
    });
  }
  void enqueue(int rounds) {
    for (int i = 0; i < rounds; ++i) enqueue();
  }
  /// Until all ranks are here no stream waits for others: a driver may end a capture only then.
  void settle() {
    context_.synchronize(gpu.stream());
    board().meet(context_);
  }
  GpuGraph captured(int rounds) {
    return {gpu, [&] { enqueue(rounds); }};
  }
  void expect_right(std::uint64_t rounds) {
    context_.synchronize(gpu.stream());
    EXPECT_EQ(looked_, rounds);
    EXPECT_EQ(wrong_, "");
  }

  GpuStream gpu;

 private:
  Context& context_;
  const bool in_place_;
  Piece from_;
  Piece to_;
  Memory sent_;
  Memory got_;
  std::uint64_t stamped_ = 0;
  std::uint64_t looked_ = 0;
  std::string wrong_;
};

/// Moves bytes: what it gets are blocks of these ranks, one behind the other, each stamped by its sender.
void stamp_blocks(Rounds& rounds, Rank own, std::size_t block, const std::vector<Rank>& from) {
  rounds.stamp = [=](std::span<std::byte> bytes, std::uint64_t round) {
    for (std::size_t at = 0; at < bytes.size(); at += block) fill(bytes.subspan(at, block), {own, kGraphTag, round});
  };
  rounds.look = [=](std::span<const std::byte> bytes, std::uint64_t round) {
    std::string wrong;
    for (std::size_t i = 0; i < from.size(); ++i)
      wrong += difference(bytes.subspan(i * block, block), {from[i], kGraphTag, round});
    return wrong;
  };
}

/// Sums numbers of 64 bits.
void stamp_numbers(Rounds& rounds, const Context& context) {
  const auto own = static_cast<std::uint64_t>(context.rank());
  const auto size = static_cast<std::uint64_t>(context.size());
  rounds.stamp = [=](std::span<std::byte> bytes, std::uint64_t round) {
    auto* const numbers = reinterpret_cast<std::uint64_t*>(bytes.data());
    for (std::size_t i = 0; i < bytes.size() / 8; ++i) numbers[i] = (own + 1) * 1000 + i * round;
  };
  rounds.look = [=](std::span<const std::byte> bytes, std::uint64_t round) -> std::string {
    const auto* const numbers = reinterpret_cast<const std::uint64_t*>(bytes.data());
    for (std::size_t i = 0; i < bytes.size() / 8; ++i)
      if (numbers[i] != size * (size + 1) / 2 * 1000 + size * i * round) return "number " + std::to_string(i);
    return "";
  };
}

using MakeRounds = std::unique_ptr<Rounds> (*)(Context& context, std::size_t bytes);

std::vector<Rank> ranks_of_graph(const Context& context) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < context.size(); ++rank) ranks.push_back(rank);
  return ranks;
}

std::unique_ptr<Rounds> sums(Context& context, std::size_t bytes) {
  auto rounds = std::make_unique<Rounds>(context, bytes, bytes);
  stamp_numbers(*rounds, context);
  rounds->collective = allreduce(context, "sum", Op::sum, Number::uint64, rounds->from(), rounds->to());
  return rounds;
}

std::unique_ptr<Rounds> gathers(Context& context, std::size_t bytes) {
  auto rounds = std::make_unique<Rounds>(context, bytes, bytes * static_cast<std::size_t>(context.size()));
  stamp_blocks(*rounds, context.rank(), bytes, ranks_of_graph(context));
  rounds->collective = allgather(context, "gather", rounds->from(), rounds->to());
  return rounds;
}

std::unique_ptr<Rounds> exchanges(Context& context, std::size_t bytes) {
  const std::size_t all = bytes * static_cast<std::size_t>(context.size());
  auto rounds = std::make_unique<Rounds>(context, all, all);
  stamp_blocks(*rounds, context.rank(), bytes, ranks_of_graph(context));
  rounds->collective = alltoall(context, "exchange", rounds->from(), rounds->to());
  return rounds;
}

std::unique_ptr<Rounds> broadcasts(Context& context, std::size_t bytes) {
  constexpr Rank kRoot = 1;
  auto rounds = std::make_unique<Rounds>(context, bytes, bytes, true);
  stamp_blocks(*rounds, context.rank(), bytes, {kRoot});
  rounds->collective = broadcast(context, "broadcast", rounds->to(), kRoot);
  return rounds;
}

void replay_among_eager_rounds(Context& context, MakeRounds make, std::size_t bytes) {
  const auto rounds = make(context, bytes);
  rounds->enqueue(4);  // the places need not be the first when the capture begins
  rounds->settle();
  GpuGraph once = rounds->captured(kRoundsOfGraph);
  GpuGraph twice = rounds->captured(2 * kRoundsOfGraph);
  board().meet(context);
  for (int i = 0; i < 10; ++i) once.launch(rounds->gpu);
  twice.launch(rounds->gpu);
  rounds->enqueue(kRoundsOfGraph);
  once.launch(rounds->gpu);
  rounds->expect_right(4 + 10 * 3 + 6 + 3 + 3);
  board().meet(context);
}

TEST_P(GpuCollectiveGraphs, of_sums_are_replayed_among_eager_starts) {
  for (const std::size_t bytes : {64, 20'000})
    run_peers(peers(3), [=](Context& context) { replay_among_eager_rounds(context, sums, bytes); });
}

TEST_P(GpuCollectiveGraphs, of_exchanges_are_replayed_among_eager_starts) {
  for (const std::size_t bytes : {64, 20'000}) {
    run_peers(peers(3), [=](Context& context) {
      replay_among_eager_rounds(context, gathers, bytes);
      replay_among_eager_rounds(context, exchanges, bytes);
      replay_among_eager_rounds(context, broadcasts, bytes);
    });
  }
}

/// A barrier between two sums: what is captured together is replayed together.
TEST_P(GpuCollectiveGraphs, may_have_several_collectives) {
  run_peers(peers(2), [](Context& context) {
    const auto first = sums(context, 64);
    Collective together = barrier(context, "together");
    const Stream s = first->gpu.stream();
    const auto step = [&] {
      first->enqueue();
      together.start(s);
      together.wait(s);
    };
    for (int i = 0; i < kRoundsOfGraph; ++i) step();
    first->settle();
    GpuGraph graph(first->gpu, [&] {
      for (int i = 0; i < kRoundsOfGraph; ++i) step();
    });
    board().meet(context);
    for (int i = 0; i < 10; ++i) graph.launch(first->gpu);
    first->expect_right(33);
    board().meet(context);
  });
}

/// Nothing has changed then: a graph that is right follows.
TEST_P(GpuCollectiveGraphs, that_would_be_wrong_are_refused) {
  run_peers(peers(2), [](Context& context) {
    const auto rounds = sums(context, 64);
    const Stream s = rounds->gpu.stream();
    const auto refused = [&](Code code, const char* what, const std::function<void()>& call) {
      const auto error = expect_code(code, call);
      ASSERT_TRUE(error);
      EXPECT_NE(std::string(error->what()).find(what), std::string::npos) << error->what();
    };
    refused(Code::unsupported, "outside of graphs",
            [&] { GpuGraph(rounds->gpu, [&] { rounds->collective.start(s); }); });
    board().meet(context);
    rounds->enqueue(1);
    rounds->settle();
    {
      const GpuGraph of_two = rounds->captured(2);
      refused(Code::misuse, "it has 2 rounds", [&] { rounds->collective.start(s); });
      const GpuGraph half(rounds->gpu, [&] { rounds->collective.start(s); });
      refused(Code::misuse, "a start without its wait", [&] { rounds->collective.wait(s); });
      const GpuGraph another_half(rounds->gpu, [&] { rounds->collective.start(s); });
      refused(Code::misuse, "a start without its wait", [&] { rounds->collective.start(s); });
    }
    rounds->collective.start(s);
    refused(Code::misuse, "a start outside of it", [&] { GpuGraph(rounds->gpu, [&] { rounds->collective.wait(s); }); });
    rounds->collective.wait(s);
    rounds->settle();
    EXPECT_THROW(GpuGraph(rounds->gpu,
                          [&] {
                            rounds->enqueue(1);
                            EXPECT_THROW(rounds->gpu.synchronize(), std::runtime_error);  // now it is invalid
                            refused(Code::misuse, "invalid already", [&] { rounds->collective.start(s); });
                          }),
                 std::runtime_error);
    GpuGraph graph = rounds->captured(kRoundsOfGraph);
    board().meet(context);
    for (int i = 0; i < 10; ++i) graph.launch(rounds->gpu);
    rounds->enqueue(kRoundsOfGraph);
    rounds->expect_right(34);
    board().meet(context);
  });
}

TEST_P(GpuCollectiveGraphs, that_find_other_places_than_they_captured_say_so) {
  run_peers(with_untold(peers(2)), [](Context& context) {
    const auto rounds = sums(context, 64);
    rounds->enqueue(1);
    rounds->settle();
    GpuGraph graph = rounds->captured(kRoundsOfGraph);
    board().meet(context);
    rounds->enqueue(1);
    rounds->settle();
    graph.launch(rounds->gpu);
    const auto error = expect_code(Code::misuse, [&] { context.synchronize(rounds->gpu.stream()); });
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("another slot"), std::string::npos) << error->what();
    board().meet(context);
  });
}

TEST_P(GpuCollectiveGraphs, end_before_their_collective_closes) {
  run_peers(peers(2), [](Context& context) {
    const auto rounds = sums(context, 64);
    rounds->enqueue(1);
    rounds->settle();
    GpuGraph graph = rounds->captured(kRoundsOfGraph);
    board().meet(context);
    rounds->enqueue(kRoundsOfGraph);
    graph.launch(rounds->gpu);
    rounds->expect_right(7);
    rounds->collective.close(10s);  // the replay has not set back what it waits for
    board().meet(context);
  });
}

std::vector<GpuCase> cases_of_collective_graphs() {
  std::vector<GpuCase> all;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name != "threads" && ground.name != "shm") continue;
    for (const Whose whose : {Whose::ours, Whose::hosts}) all.push_back({ground, false, whose, whose});
  }
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuCollectiveGraphs, testing::ValuesIn(cases_of_collective_graphs()), GpuCaseName());

// ---- ranks that die

class LostGraphMembers : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LostGraphMembers);

/// Rank 1 dies before it launches its graph, for whose sums the others' wait.
TEST_P(LostGraphMembers, release_all_whose_graphs_wait_for_them) {
  Peers peers = peers_of(GetParam(), 4);
  peers.limit = 90s;
  peers.keep_going = peers.untold = true;
  expect_only_rank_1_killed(end_of_peers(peers, [](Context& context) {
    constexpr std::size_t kGraphsLeft = 11;  // on the board
    GpuStream gpu;
    const Stream s = gpu.stream();
    const Piece piece(context, GetParam().target, 12'000);
    Collective all = allreduce(context, "sum", Op::sum, Number::float32, piece.slice(), piece.slice());
    const auto rounds = [&](int count) {
      for (int i = 0; i < count; ++i) {
        all.start(s);
        all.wait(s);
      }
    };
    rounds(1);
    context.synchronize(s);
    board().meet(context);
    GpuGraph graph(gpu, [&] { rounds(kRoundsOfGraph); });
    board().meet(context);
    graph.launch(gpu);
    context.synchronize(s);
    const auto others = static_cast<std::uint64_t>(context.size() - 1);
    if (context.rank() == 1) die_when_ready(others);
    expect_released(
        [&] {
          expect_code(Code::peer_lost, [&] {
            graph.launch(gpu);
            board().word(kReady).fetch_add(1);
            context.synchronize(s);
            context.check();
          });
        },
        0ms, gpu_released() + kNoticed);
    board().word(kGraphsLeft).fetch_add(1);
    board().await(kGraphsLeft, others);  // a rank that leaves would end the others' waits
    expect_code(Code::peer_lost, [&] { all.start(s); });
  }));
}

INSTANTIATE_IN_ITS_RANKS(Quick, LostGraphMembers, testing::ValuesIn([] {
                           std::vector<GpuCase> all = cases_of_collective_graphs();
                           std::erase_if(all, [](const GpuCase& one) {
                             return !one.ground.processes || !why_not_kill(one.ground).empty();
                           });
                           return all;
                         }()),
                         GpuCaseName());

}  // namespace
