// SPDX-License-Identifier: Apache-2.0
// The rivals on libfabric, between two ranks of this process, on loopback.
#include "apps/bench/rivals/ofi.hpp"

#include "apps/bench/harness/exchange.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace bench {
namespace {

Options on(const char* backend) {
  Options options;
  options.backend = backend;
  options.sizes = {0, 8, 64, 4096, 8 << 20};
  return options;
}

// True if two ranks run the result of `make`, and it takes time.
template <class Make>
bool runs(const Options& options, std::size_t bytes, int depth, int window, Make make) {
  const auto body = [&](sluice::Context& context) {
    Workload workload{context, options};
    workload.peer = 1 - context.rank();
    workload.first = context.rank() == 0;
    workload.bytes = bytes;
    workload.depth = depth;
    workload.window = window;
    const auto contender = make(workload);
    for (int i = 0; i < 3; ++i) EXPECT_GT(contender->run(5), 0);
  };
  return sluice::run_threads(2, body) == 0;
}

struct Way {
  OfiMode mode;
  const char* backend;
};

std::string name_of(const Way& way) {
  constexpr const char* kModes[] = {"flag_", "flag_wait_", "data_"};
  return std::string(kModes[static_cast<int>(way.mode)]) + (way.backend + 4);
}

class OfiRival : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    const std::string why = why_no_ofi(mode_, options_);
    if (why.empty()) return;
    printf("SKIPPED-HERE: bench_ofi: %s\n", why.c_str());
    GTEST_SKIP() << why;
  }
  const OfiMode mode_ = GetParam().mode;
  const Options options_ = on(GetParam().backend);
};

TEST_P(OfiRival, answers_messages_of_every_size) {
  for (const std::size_t bytes : options_.sizes) {
    const auto make = [&](const Workload& workload) { return make_ofi_ping_pong(mode_, workload); };
    EXPECT_TRUE(runs(options_, bytes, 1, 1, make)) << bytes;
  }
}

TEST_P(OfiRival, sends_windows_through_rings_of_every_depth) {
  struct Ring {
    int depth;
    int window;
  };
  for (const Ring ring : {Ring{1, 1}, Ring{1, 5}, Ring{2, 7}, Ring{3, 64}, Ring{8, 64}, Ring{64, 9}}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}}) {
      const auto make = [&](const Workload& workload) { return make_ofi_flood(mode_, workload); };
      EXPECT_TRUE(runs(options_, bytes, ring.depth, ring.window, make)) << ring.depth << " " << ring.window;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, OfiRival,
                         testing::Values(Way{OfiMode::flag, "ofi:tcp"}, Way{OfiMode::flag_wait, "ofi:tcp"},
                                         Way{OfiMode::data, "ofi:tcp"}, Way{OfiMode::flag, "ofi:sockets"},
                                         Way{OfiMode::flag_wait, "ofi:sockets"}, Way{OfiMode::data, "ofi:sockets"}),
                         [](const auto& way) { return name_of(way.param); });

/// The accesses check by themselves what they have moved.
class OfiAccesses : public testing::TestWithParam<const char*> {};

TEST_P(OfiAccesses, move_every_byte) {
  const Options options = on(GetParam());
  if (const std::string why = why_no_ofi(OfiMode::access, options); !why.empty()) {
    printf("SKIPPED-HERE: bench_ofi: %s\n", why.c_str());
    GTEST_SKIP() << why;
  }
  const auto body = [&](sluice::Context& context) {
    for (const Access access : {Access::put, Access::get, Access::fresh_get, Access::fetch_add, Access::compare_swap,
                                Access::accumulate, Access::notice, Access::put_notify, Access::get_notify}) {
      for (const std::size_t bytes : {64, 65536}) {
        Workload workload{context, options};
        workload.peer = 1 - context.rank();
        workload.first = context.rank() == 0;
        workload.bytes = bytes;
        workload.access = access;
        const auto contender = make_ofi_accesses(OfiMode::access, workload);
        exchange(context, workload.peer, true);  // both are made
        for (int i = 0; i < 3; ++i) contender->run(10);
      }
    }
  };
  EXPECT_EQ(sluice::run_threads(2, body), 0);
}

INSTANTIATE_TEST_SUITE_P(Providers, OfiAccesses, testing::Values("ofi:tcp", "ofi:sockets"),
                         [](const auto& provider) { return std::string(provider.param + 4); });

TEST(OfiRivals, say_why_a_provider_cannot_carry_them) {
  EXPECT_NE(why_no_ofi(OfiMode::data, on("ofi:pigeon")), "");
  EXPECT_NE(why_no_ofi(OfiMode::flag, on("ofi:pigeon")), "");
  EXPECT_NE(why_no_ofi(OfiMode::access, on("ofi:pigeon")), "");
}

}  // namespace
}  // namespace bench
