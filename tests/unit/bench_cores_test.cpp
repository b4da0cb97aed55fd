// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/cores.hpp"

#include <sluice/run.hpp>

#include <gtest/gtest.h>

#include <array>
#include <optional>

namespace bench {
namespace {

TEST(Pinning, gives_each_rank_a_core_of_its_own) {
  EXPECT_EQ(own_core({2, 3, 5}, 0, 3), 2);
  EXPECT_EQ(own_core({2, 3, 5}, 2, 3), 5);
  EXPECT_EQ(own_core({2, 3, 5}, 3, 1), 2);  // ranks that know of no other rank on their machine
}

TEST(Pinning, leaves_more_ranks_than_cores_as_they_are) {
  EXPECT_FALSE(own_core({0, 1}, 0, 3));
  EXPECT_FALSE(own_core({4}, 1, 2));
}

TEST(Pinning, binds_the_calling_thread) {
  const bool enough = allowed_cores().size() >= 2;
  std::array<std::optional<int>, 2> cores;
  const int code = sluice::run_threads(2, [&](sluice::Context& context) {
    pin(context);
    cores.at(static_cast<std::size_t>(context.rank())) = bound_core();
  });
  EXPECT_EQ(code, 0);
  if (!enough) return;
  ASSERT_TRUE(cores[0] && cores[1]);
  EXPECT_NE(*cores[0], *cores[1]);
}

TEST(LineTime, is_measured_by_the_first_of_two_ranks) {
  std::array<std::optional<double>, 2> times;
  const int code = sluice::run_threads(2, [&](sluice::Context& context) {
    times.at(static_cast<std::size_t>(context.rank())) = line_time_ns(context, 1 - context.rank(), context.rank() == 0);
  });
  EXPECT_EQ(code, 0);
  EXPECT_GT(times[0].value_or(0), 0);
  EXPECT_FALSE(times[1]);
}

TEST(LineTime, that_changes_much_during_a_run_is_told) {
  EXPECT_EQ(line_change(49, 60), "");
  EXPECT_NE(line_change(49, 190).find("takes 190 ns, at the begin it took 49"), std::string::npos);
  EXPECT_NE(line_change(190, 49), "");
}

}  // namespace
}  // namespace bench
