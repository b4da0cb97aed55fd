// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/goals.hpp"
#include "apps/common/usage_error.hpp"

#include <gtest/gtest.h>

namespace {

using bench::goal_of;
using bench::parse_goals;

TEST(Goals, are_for_a_rival_at_some_sizes_of_a_metric) {
  const auto goals = parse_goals("floor=0.97@64k:4m,synchronised/floor=0.55,mpi=2@8");
  ASSERT_EQ(goals.size(), 3U);
  EXPECT_EQ(goal_of(goals, "latency", "floor", 64 << 10), 0.97);
  EXPECT_EQ(goal_of(goals, "latency", "floor", 4 << 20), 0.97);
  EXPECT_FALSE(goal_of(goals, "latency", "floor", 32 << 10));
  EXPECT_FALSE(goal_of(goals, "latency", "floor", 8 << 20));
  EXPECT_FALSE(goal_of(goals, "latency", "protocol_floor", 64 << 10));
  EXPECT_EQ(goal_of(goals, "round trip synchronised", "floor", 8), 0.55);
  EXPECT_EQ(goal_of(goals, "latency", "mpi", 8), 2);
  EXPECT_FALSE(goal_of(goals, "latency", "mpi", 16));
}

TEST(Goals, are_for_all_rivals_of_a_family) {
  const auto goals = parse_goals("mpi*=1");
  for (const char* rival : {"mpi", "mpi_fence"}) EXPECT_EQ(goal_of(goals, "latency", rival, 8), 1) << rival;
  EXPECT_FALSE(goal_of(goals, "latency", "floor", 8));
}

TEST(Goals, of_which_the_largest_counts) {
  EXPECT_EQ(goal_of(parse_goals("mpi=1.5@8:4k,mpi*=1"), "latency", "mpi", 8), 1.5);
  EXPECT_EQ(goal_of(parse_goals("mpi*=1,mpi=1.5@8:4k"), "latency", "mpi", 8), 1.5);
  EXPECT_EQ(goal_of(parse_goals("mpi*=1,mpi=1.5@8:4k"), "latency", "mpi", 8192), 1);
}

TEST(Goals, that_cannot_be_are_refused) {
  for (const char* text :
       {"floor", "=1", "floor=", "floor=x", "floor=1x", "floor=0", "floor=-1", "floor=1@", "floor=1@x"})
    EXPECT_THROW(parse_goals(text), apps::UsageError) << text;
}

}  // namespace
