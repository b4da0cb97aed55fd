// SPDX-License-Identifier: Apache-2.0
// Exchanges by MPI of a rank with itself.
#include "apps/common/exchange.hpp"
#include "apps/common/mpi_world.hpp"
#include "apps/common/stream_collective.hpp"
#include "apps/common/usage_error.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstddef>
#include <cstring>
#include <limits>

namespace apps {
namespace {

class ExchangeMpi : public testing::TestWithParam<MpiRequests> {
 protected:
  static void SetUpTestSuite() { MPI_Init(nullptr, nullptr); }
  static void TearDownTestSuite() { MPI_Finalize(); }
};

constexpr std::size_t kBytes = 24;

// `body(exchange, links)`, with a message of kBytes.
template <class Body>
void exchange_with_itself(MpiRequests requests, const Body& body) {
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    const sluice::Memory out = context.allocate(kSlots * kBytes);
    const sluice::Memory in = context.allocate(kSlots * kBytes);
    const Links links{{{0, out.all()}}, {{0, in.all()}}};
    body(*make_mpi_exchange(links, requests), links);
  });
  EXPECT_EQ(code, 0);
}

TEST_P(ExchangeMpi, brings_each_message) {
  exchange_with_itself(GetParam(), [](Exchange& exchange, const Links& links) {
    for (int round = 1; round <= 5; ++round) {
      const int slot = exchange.acquire();
      std::memset(links.out[0].slot(slot), round, kBytes);
      exchange.put();
      exchange.wait();
      for (std::size_t i = 0; i < kBytes; ++i) EXPECT_EQ(links.in[0].slot(slot)[i], static_cast<std::byte>(round));
      exchange.release();
    }
  });
}

// As where the work between fails.
TEST_P(ExchangeMpi, ends_between_wait_and_release) {
  exchange_with_itself(GetParam(), [](Exchange& exchange, const Links&) {
    exchange.acquire();
    exchange.put();
    exchange.wait();
  });
}

TEST_P(ExchangeMpi, of_groups_share_a_communicator) {
  const int code = sluice::run_threads(1, [](sluice::Context& context) {
    const sluice::Memory out = context.allocate(kBytes);
    const sluice::Memory in = context.allocate(kBytes);
    const GroupBlocks blocks{{{0, 0, out.all()}}, {{0, 0, in.all()}}};
    const auto one = make_mpi_alltoall(blocks, GetParam());
    const auto group = shared_group({0});
    const auto users = group.use_count();
    const auto other = make_mpi_alltoall(blocks, GetParam());
    EXPECT_EQ(group.use_count(), users + 1);
    for (int round = 1; round <= 3; ++round) {
      for (StreamCollective* const exchange : {one.get(), other.get()}) {
        std::memset(out.data(), round, kBytes);
        std::memset(in.data(), 0, kBytes);
        exchange->start();
        exchange->wait();
        EXPECT_EQ(std::memcmp(out.data(), in.data(), kBytes), 0);
      }
    }
  });
  EXPECT_EQ(code, 0);
}

TEST_P(ExchangeMpi, refuses_counts_that_are_no_ints) {
  constexpr unsigned long long kMost = std::numeric_limits<int>::max();
  EXPECT_NO_THROW(check_counts(MPI_COMM_SELF, kMost, "an exchange", "numbers"));
  EXPECT_THROW(check_counts(MPI_COMM_SELF, kMost + 1, "an exchange", "numbers"), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Requests, ExchangeMpi, testing::Values(MpiRequests::each_time, MpiRequests::persistent),
                         [](const auto& requests) {
                           return requests.param == MpiRequests::persistent ? "persistent" : "each_time";
                         });

}  // namespace
}  // namespace apps
