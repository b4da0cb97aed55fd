// SPDX-License-Identifier: Apache-2.0
// Arrays of a GPU that several ranks share: each of them combines a slice in place. And ranks that die inside a sum on
// a GPU.
#include <signal.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "tests/conformance/gpu_cases.hpp"
#include "tests/conformance/released.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kSliceNumbers = 3000;
constexpr std::size_t kSliceBytes = kSliceNumbers * sizeof(float);
constexpr int kSharers = 2;  // ranks of an array

/// Two ranks that share an array in the memory of the first of them, and combine a slice of it each with the ranks at
/// their place at other arrays.
struct Sharer {
  Sharer(Context& in, Whose whose)
      : context(in), owner(in.rank() / kSharers * kSharers), place(static_cast<std::size_t>(in.rank() % kSharers)),
        together(barrier(in, "together")) {
    if (in.rank() == owner) {
      memory = std::make_unique<Piece>(in, whose, kSharers * kSliceBytes);
      window = in.window("array", memory->slice());
    }
    target = in.target(owner, "array");
    shared = target.mapped();
    std::vector<Rank> ranks;
    for (Rank rank = static_cast<Rank>(place); rank < in.size(); rank += kSharers) ranks.push_back(rank);
    lane = in.sub(ranks);
  }
  bool owns() const { return context.rank() == owner; }
  Slice slice() const { return shared.slice(place * kSliceBytes, kSliceBytes); }
  /// Between barriers on the stream: the owner's numbers are there before, and all slices are combined behind.
  void combine(Collective& sum) {
    for (Collective* const one : {&together, &sum, &together}) {
      one->start(gpu.stream());
      one->wait(gpu.stream());
    }
  }

  Context& context;
  const GpuStream gpu;
  const Rank owner;
  const std::size_t place;
  std::unique_ptr<Piece> memory;  // the owner's
  Window window;
  Target target;
  Region shared;
  Context lane;
  Collective together;
};

class GpuSlices : public testing::TestWithParam<GpuCase> {
 public:
  static Peers peers(int ranks) {
    Peers peers = peers_of(GetParam(), ranks);
    peers.limit = 90s;
    // Streams of threads share the hardware queues of a process, where one that waits holds up those behind it.
    peers.environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS=32");
    return peers;
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuSlices);

/// Sums of them depend on their order.
std::vector<float> numbers_of_owner(Rank owner, std::uint64_t round) {
  std::minstd_rand random(static_cast<unsigned>(owner) * 7919 + static_cast<unsigned>(round));
  std::vector<float> numbers(kSharers * kSliceNumbers);
  for (float& number : numbers) {
    const float scale = static_cast<float>(1U << (random() % 24U));
    number = std::uniform_real_distribution<float>(-scale, scale)(random);
  }
  return numbers;
}

template <class T>
std::vector<T> read_from_gpu(const Slice& memory) {
  std::vector<T> numbers(memory.bytes() / sizeof(T));
  gpu_copy(numbers.data(), memory.data(), memory.bytes());
  return numbers;
}

/// Three arrays, of two ranks each: to the bits of a loop over the arrays.
TEST_P(GpuSlices, of_an_array_that_ranks_share_are_combined_in_place) {
  run_peers(peers(3 * kSharers), [](Context& context) {
    Sharer sharer(context, GetParam().target);
    ASSERT_EQ(sharer.shared.bytes(), kSharers * kSliceBytes) << sharer.target.describe();
    const Slice slice = sharer.slice();
    Collective sum = allreduce(sharer.lane, "slices", Op::sum, Number::float32, slice, slice, {.fixed_order = true});
    for (std::uint64_t round = 1; round <= 3; ++round) {
      const std::vector<float> mine = numbers_of_owner(sharer.owner, round);
      if (sharer.owns()) gpu_copy(sharer.memory->slice().data(), mine.data(), kSharers * kSliceBytes);
      board().meet(context);
      sharer.combine(sum);
      context.synchronize(sharer.gpu.stream());
      std::vector<float> expected = numbers_of_owner(0, round);
      for (const Rank owner : {kSharers, 2 * kSharers})
        std::ranges::transform(expected, numbers_of_owner(owner, round), expected.begin(), std::plus());
      std::vector<std::uint32_t> bits;
      for (const float number : expected) bits.push_back(std::bit_cast<std::uint32_t>(number));
      EXPECT_EQ(read_from_gpu<std::uint32_t>(sharer.shared.all()), bits) << "round " << round;
      board().meet(context);
    }
  });
}

/// Long messages that land in a slice: by way of the host where it is another process's, which this one cannot give on.
TEST_P(GpuSlices, of_an_array_that_ranks_share_get_long_messages) {
  run_peers(peers(2 * kSharers), [](Context& context) {
    Sharer sharer(context, GetParam().target);
    Collective given = broadcast(sharer.lane, "slices", sharer.slice(), 0);
    for (std::uint64_t round = 1; round <= 3; ++round) {
      const std::vector<float> mine = numbers_of_owner(sharer.owner, round);
      if (sharer.owns()) gpu_copy(sharer.memory->slice().data(), mine.data(), kSharers * kSliceBytes);
      board().meet(context);
      sharer.combine(given);
      context.synchronize(sharer.gpu.stream());
      EXPECT_EQ(read_from_gpu<float>(sharer.shared.all()), numbers_of_owner(0, round)) << "round " << round;
      board().meet(context);
    }
  });
}

/// The memory of another rank is as much the GPU's as one's own.
TEST_P(GpuSlices, of_a_gpu_are_refused_on_other_streams) {
  run_peers(peers(2 * kSharers), [](Context& context) {
    Sharer sharer(context, GetParam().target);
    const Slice slice = sharer.slice();
    Collective sum = allreduce(sharer.lane, "slices", Op::max, Number::float32, slice, slice);
    expect_code(Code::unsupported, [&] { sum.start({}); });
    HostStream host;
    expect_code(Code::unsupported, [&] { sum.start(Stream::host(host)); });
    const std::vector<float> mine(kSharers * kSliceNumbers, static_cast<float>(context.rank()));
    if (sharer.owns()) gpu_copy(sharer.memory->slice().data(), mine.data(), kSharers * kSliceBytes);
    board().meet(context);
    sharer.combine(sum);
    context.synchronize(sharer.gpu.stream());
    for (const float number : read_from_gpu<float>(sharer.shared.all())) ASSERT_EQ(number, kSharers);
    board().meet(context);
  });
}

/// Memory that a rank has mapped stays when the owner has closed its window, and the target is closed.
TEST_P(GpuSlices, that_are_mapped_outlive_window_and_target) {
  run_peers(peers(kSharers), [](Context& context) {
    Sharer sharer(context, GetParam().target);
    const std::vector<float> mine(kSharers * kSliceNumbers, 7);
    if (sharer.owns()) gpu_copy(sharer.memory->slice().data(), mine.data(), kSharers * kSliceBytes);
    board().meet(context);
    sharer.target.close();
    if (sharer.owns()) sharer.window.close();
    EXPECT_EQ(read_from_gpu<float>(sharer.shared.all()), mine);
    board().meet(context);  // then the owner may free it
  });
}

TEST_P(GpuSlices, keep_nans_in_minima_and_maxima) {
  run_peers(peers(2), [](Context& context) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const GpuStream gpu;
    const Piece piece(context, GetParam().target, 4 * sizeof(float));
    const Slice& all = piece.slice();
    for (const Op op : {Op::min, Op::max}) {
      Collective best = allreduce(context, "best", op, Number::float32, all, all);
      const auto own = static_cast<float>(context.rank());
      const std::vector<float> mine{context.rank() == 0 ? kNan : own, context.rank() == 1 ? kNan : own, kNan, own};
      gpu_copy(all.data(), mine.data(), all.bytes());
      board().meet(context);
      best.start(gpu.stream());
      best.wait(gpu.stream());
      context.synchronize(gpu.stream());
      const auto found = read_from_gpu<float>(all);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NE(found[i], found[i]) << "not a NaN at " << i;
      EXPECT_EQ(found[3], op == Op::min ? 0 : 1);
      board().meet(context);
    }
  });
}

std::vector<GpuCase> cases_of_slices() {
  std::vector<GpuCase> all;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name != "threads" && ground.name != "shm") continue;
    for (const Whose whose : {Whose::ours, Whose::users, Whose::pooled}) all.push_back({ground, false, whose, whose});
  }
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuSlices, testing::ValuesIn(cases_of_slices()), GpuCaseName());

// ---- ranks that die

class LostGpuMembers : public testing::TestWithParam<GpuCase> {
 public:
  static Peers peers(int ranks) {
    Peers peers = GpuSlices::peers(ranks);
    peers.keep_going = peers.untold = true;
    return peers;
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LostGpuMembers);

/// Returns when the streams of all others wait in the sum. Rank 1 has started it, and dies.
template <class Sum>
void lose_rank_1_inside(Context& context, const GpuStream& gpu, Sum sum) {
  constexpr std::size_t kSumLeft = 11;  // on the board
  const auto others = static_cast<std::uint64_t>(context.size() - 1);
  if (context.rank() == 1) {
    sum(false);
    die_when_ready(others);
  }
  expect_released(
      [&] {
        expect_code(Code::peer_lost, [&] {
          sum(true);
          board().word(kReady).fetch_add(1);
          context.synchronize(gpu.stream());
          context.check();
        });
      },
      0ms, gpu_released() + kNoticed);
  board().word(kSumLeft).fetch_add(1);
  board().await(kSumLeft, others);  // a rank that leaves would end the others' waits
}

TEST_P(LostGpuMembers, release_all_whose_streams_are_in_the_sum) {
  expect_only_rank_1_killed(end_of_peers(peers(4), [](Context& context) {
    const GpuStream gpu;
    const Piece piece(context, GetParam().target, kSliceBytes);
    Collective all = allreduce(context, "sum", Op::sum, Number::float32, piece.slice(), piece.slice());
    all.start(gpu.stream());
    all.wait(gpu.stream());
    context.synchronize(gpu.stream());
    lose_rank_1_inside(context, gpu, [&](bool waits) {
      all.start(gpu.stream());
      if (waits) all.wait(gpu.stream());
    });
    expect_code(Code::peer_lost, [&] { all.start(gpu.stream()); });
  }));
}

/// Rank 1 combines a slice of the memory of rank 0.
TEST_P(LostGpuMembers, release_all_who_combine_slices) {
  const Ended ended = end_of_peers(peers(4), [](Context& context) {
    Sharer sharer(context, GetParam().target);
    const Slice slice = sharer.slice();
    Collective sum = allreduce(sharer.lane, "slices", Op::sum, Number::float32, slice, slice);
    sharer.combine(sum);
    context.synchronize(sharer.gpu.stream());
    lose_rank_1_inside(context, sharer.gpu, [&](bool waits) {
      if (waits) return sharer.combine(sum);
      sharer.together.start(sharer.gpu.stream());
      sharer.together.wait(sharer.gpu.stream());
      sum.start(sharer.gpu.stream());
    });
  });
  EXPECT_FALSE(ended.hung);
  EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.text;  // a failure that no call has thrown is a line
}

std::vector<GpuCase> cases_of_lost_members() {
  std::vector<GpuCase> all = cases_of_slices();
  std::erase_if(all, [](const GpuCase& one) { return !one.ground.processes || !why_not_kill(one.ground).empty(); });
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, LostGpuMembers, testing::ValuesIn(cases_of_lost_members()), GpuCaseName());

}  // namespace
