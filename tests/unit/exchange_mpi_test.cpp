// SPDX-License-Identifier: Apache-2.0
// An exchange by MPI of a rank with itself.
#include "apps/common/exchange.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstddef>
#include <cstring>

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

INSTANTIATE_TEST_SUITE_P(Requests, ExchangeMpi, testing::Values(MpiRequests::each_time, MpiRequests::persistent),
                         [](const auto& requests) {
                           return requests.param == MpiRequests::persistent ? "persistent" : "each_time";
                         });

}  // namespace
}  // namespace apps
