// SPDX-License-Identifier: Apache-2.0
// Collectives on Views, in program order and on a host stream.
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using CollectiveExec = Kokkos::DefaultHostExecutionSpace;
using sluice::kokkos::Queue;

struct CollectiveCase {
  bool processes;
  bool host_stream;
};

void PrintTo(const CollectiveCase& one, std::ostream* out) {
  *out << (one.processes ? "processes" : "threads") << (one.host_stream ? "_host" : "_inline");
}

class CollectiveViews : public testing::TestWithParam<CollectiveCase> {
 public:
  static Peers peers() {
    Peers peers;
    peers.ranks = 3;
    peers.processes = GetParam().processes;
    return peers;
  }
};

TEST_P(CollectiveViews, are_combined_by_the_type_of_their_elements) {
  run_peers(peers(), [](Context& context) {
    HostStream stream;
    const Queue<CollectiveExec> queue = queue_of<CollectiveExec>(stream, GetParam().host_stream, CollectiveExec());
    const int rank = context.rank();
    const Kokkos::View<double**, Kokkos::HostSpace> sums("sums", 5, 7);
    const Kokkos::View<const double**, Kokkos::HostSpace> read_only = sums;
    const Kokkos::View<std::int32_t*, Kokkos::HostSpace> least("least", 3);
    const Kokkos::View<std::uint64_t*, Kokkos::HostSpace> before("before", 4);
    const Kokkos::View<std::uint64_t, Kokkos::HostSpace> last("last");
    const Kokkos::View<float*, Kokkos::HostSpace> all("all", 6);
    const Kokkos::View<float*, Kokkos::HostSpace> part("part", 2);
    auto sum = kokkos::allreduce(context, queue, "sum", Op::sum, read_only, sums);
    auto min = kokkos::reduce(context, queue, "min", Op::min, least, least, 1);
    auto prefix = kokkos::scan(context, queue, "prefix", Op::sum, before, before);
    auto most = kokkos::allreduce(context, queue, "most", Op::max, last, last, {.fixed_order = true});
    auto parted = kokkos::reduce_scatter(context, queue, "parted", Op::sum, all, part);
    for (int round = 1; round <= 3; ++round) {
      queue.run([=] {
        Kokkos::deep_copy(sums, rank + round);
        Kokkos::deep_copy(least, -rank - round);
        Kokkos::deep_copy(before, rank + 1);
        last() = static_cast<std::uint64_t>(rank) + static_cast<std::uint64_t>(round);
        for (int i = 0; i < 6; ++i) all(i) = static_cast<float>(i * round);
      });
      for (auto* const one : {&sum, &min, &prefix, &most, &parted}) one->start();
      for (auto* const one : {&sum, &min, &prefix, &most, &parted}) one->wait();
      queue.run([=] {
        EXPECT_EQ(sums(4, 6), 3 + 3 * round);
        if (rank == 1) {
          EXPECT_EQ(least(2), -2 - round);
        }
        EXPECT_EQ(before(3), static_cast<std::uint64_t>((rank + 1) * (rank + 2) / 2));
        EXPECT_EQ(last(), 2 + static_cast<std::uint64_t>(round));
        EXPECT_EQ(part(1), static_cast<float>(3 * (2 * rank + 1) * round));
      });
    }
    context.synchronize(queue.stream());
  });
}

TEST_P(CollectiveViews, are_moved_whole) {
  run_peers(peers(), [](Context& context) {
    HostStream stream;
    const Queue<CollectiveExec> queue = queue_of<CollectiveExec>(stream, GetParam().host_stream, CollectiveExec());
    const int rank = context.rank();
    const Kokkos::View<int*, Kokkos::HostSpace> mine("mine", 2);
    const Kokkos::View<int**, Kokkos::LayoutRight, Kokkos::HostSpace> all("all", 3, 2);
    const Kokkos::View<int**, Kokkos::LayoutRight, Kokkos::HostSpace> swapped("swapped", 3, 2);
    auto gathered = kokkos::allgather(context, queue, "gathered", mine, all);
    auto exchanged = kokkos::alltoall(context, queue, "exchanged", all, swapped);
    auto given = kokkos::broadcast(context, queue, "given", mine, 2);
    queue.run([=] { Kokkos::deep_copy(mine, 10 * (rank + 1)); });
    for (auto* const one : {&gathered, &exchanged, &given}) {
      one->start();
      one->wait();
    }
    context.synchronize(queue.stream());
    EXPECT_EQ(all(1, 1), 20);
    EXPECT_EQ(swapped(2, 0), 10 * (rank + 1));
    EXPECT_EQ(mine(1), 30);
  });
}

/// Rank 1 is the root; the others have no View of all.
TEST_P(CollectiveViews, are_gathered_and_scattered_by_one_rank) {
  run_peers(peers(), [](Context& context) {
    HostStream stream;
    const Queue<CollectiveExec> queue = queue_of<CollectiveExec>(stream, GetParam().host_stream, CollectiveExec());
    const int rank = context.rank();
    const std::size_t at_root = rank == 1 ? 1 : 0;
    const Kokkos::View<double*, Kokkos::HostSpace> pair("pair", 2);
    const Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> pairs("pairs", 3 * at_root, 2);
    const Kokkos::View<int*, Kokkos::HostSpace> mine("mine", static_cast<std::size_t>(rank));
    const Kokkos::View<int*, Kokkos::HostSpace> back("back", static_cast<std::size_t>(rank));
    const Kokkos::View<int*, Kokkos::HostSpace> all("all", 3 * at_root);
    const std::vector<std::size_t> counts{0, 1, 2};
    auto gathered = kokkos::gather(context, queue, "gathered", pair, pairs, 1);
    auto uneven = kokkos::gather(context, queue, "uneven", mine, all, 1, counts);
    auto scattered = kokkos::scatter(context, queue, "scattered", all, back, 1, counts);
    for (int round = 1; round <= 3; ++round) {
      queue.run([=] {
        Kokkos::deep_copy(pair, rank + round);
        for (int i = 0; i < rank; ++i) mine(i) = round * 100 + rank * 10 + i;
      });
      for (auto* const one : {&gathered, &uneven}) {
        one->start();
        one->wait();
      }
      queue.run([=] {
        if (rank != 1) return;
        for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(pairs(i, 1), static_cast<int>(i) + round);
        const int expected[] = {round * 100 + 10, round * 100 + 20, round * 100 + 21};
        for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all(i), expected[i]);
      });
      scattered.start();
      scattered.wait();
      queue.run([=] {
        for (int i = 0; i < rank; ++i) EXPECT_EQ(back(i), round * 100 + rank * 10 + i);
      });
    }
    context.synchronize(queue.stream());
    if (rank != 1) return;
    const std::vector<std::size_t> too_many{0, 1, 3};
    EXPECT_THROW((void)kokkos::gather(context, queue, "wrong", mine, all, 1, too_many), Error);
  });
}

TEST_P(CollectiveViews, with_gaps_are_refused) {
  run_peers(peers(), [](Context& context) {
    const Queue<CollectiveExec> queue{CollectiveExec()};
    const Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> whole("whole", 4, 4);
    const auto column = Kokkos::subview(whole, Kokkos::ALL, 1);
    try {
      auto all = kokkos::allreduce(context, queue, "gaps", Op::sum, column, column);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_argument);
      EXPECT_NE(std::string(error.what()).find("has gaps"), std::string::npos) << error.what();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Quick, CollectiveViews,
                         testing::Values(CollectiveCase{false, false}, CollectiveCase{false, true},
                                         CollectiveCase{true, false}, CollectiveCase{true, true}),
                         testing::PrintToStringParamName());

}  // namespace
