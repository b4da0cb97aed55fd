// SPDX-License-Identifier: Apache-2.0
#include "apps/common/host_collectives.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace apps {
namespace {

template <class Check>
void on_ranks(int ranks, Check check) {
  const int code = sluice::run_threads(ranks, [&](sluice::Context& context) {
    const auto collectives = make_sluice_collectives(context);
    check(context, *collectives);
  });
  EXPECT_EQ(code, 0) << ranks << " ranks";
}

TEST(HostCollectives, sum_and_max_are_over_all_ranks) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    on_ranks(ranks, [ranks](sluice::Context& context, HostCollectives& collectives) {
      for (int round = 0; round < 50; ++round) {
        std::vector<double> sums = {1.0, static_cast<double>(context.rank() + round)};
        collectives.sum(sums);
        EXPECT_EQ(sums[0], ranks);
        EXPECT_EQ(sums[1], ranks * (ranks - 1) / 2 + round * ranks);
        EXPECT_EQ(collectives.max(-static_cast<double>(context.rank())), 0.0);
        EXPECT_EQ(collectives.max(static_cast<double>(context.rank())), ranks - 1);
      }
    });
}

TEST(HostCollectives, sums_are_the_same_bits_on_all_ranks) {
  std::vector<double> sums(7);
  on_ranks(7, [&](sluice::Context& context, HostCollectives& collectives) {
    sums[context.rank()] = collectives.sum(0.1 * (context.rank() + 1) / 3.0);
  });
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are what is compared
  for (const double sum : sums) EXPECT_EQ(std::memcmp(&sum, sums.data(), sizeof(sum)), 0);
}

TEST(HostCollectives, barrier_lets_nobody_through_early) {
  std::atomic<int> arrived{0};
  on_ranks(5, [&](sluice::Context&, HostCollectives& collectives) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      collectives.barrier();
      EXPECT_GE(arrived.load(), 5 * round);
      collectives.barrier();
    }
  });
}

std::byte stamp(int rank, std::size_t i) {
  return static_cast<std::byte>(31 * rank + 7 * static_cast<int>(i % 1009) + 1);
}

TEST(HostCollectives, gather_brings_every_byte_in_the_order_of_ranks) {
  // None, a few, exactly one chunk, and several with a rest.
  const std::vector<std::size_t> bytes_of = {5, 0, std::size_t{1} << 20, (std::size_t{3} << 20) + 17, 1};
  on_ranks(5, [&](sluice::Context& context, HostCollectives& collectives) {
    const int rank = context.rank();
    std::vector<std::byte> mine(bytes_of[rank]);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = stamp(rank, i);
    int next = 0;
    collectives.gather(mine, bytes_of, [&](int from, std::span<const std::byte> bytes) {
      EXPECT_EQ(from, next++);
      ASSERT_EQ(bytes.size(), bytes_of[from]);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < bytes.size(); ++i) wrong += bytes[i] != stamp(from, i) ? 1 : 0;
      EXPECT_EQ(wrong, 0U) << "from rank " << from;
    });
    EXPECT_EQ(next, rank == 0 ? 5 : 0);
  });
}

TEST(HostCollectives, gather_lets_all_ranks_send_while_rank_0_is_busy_with_another) {
  std::atomic<int> sent{0};
  const std::vector<std::size_t> bytes_of(4, 1000);
  on_ranks(4, [&](sluice::Context& context, HostCollectives& collectives) {
    collectives.gather(std::vector<std::byte>(1000), bytes_of, [&](int from, std::span<const std::byte>) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (from == 0 && sent < 3 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      EXPECT_EQ(sent, 3);
    });
    if (context.rank() > 0) ++sent;
  });
}

}  // namespace
}  // namespace apps
