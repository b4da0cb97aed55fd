// SPDX-License-Identifier: Apache-2.0
// Where MPI does not run, as in this program.
#include "apps/bench/rivals.hpp"
#include "apps/common/usage_error.hpp"

#include <gtest/gtest.h>

namespace bench {
namespace {

TEST(Rivals, are_left_out_of_a_side_that_they_lack) {
  check_rivals({"floor"}, &Rival::stream);
  EXPECT_EQ(rivals_for({"floor"}, &Rival::stream).size(), 1U);
  EXPECT_TRUE(rivals_for({"floor"}, &Rival::halo).empty());
}

TEST(Rivals, all_are_those_that_can_run) {
  EXPECT_EQ(rivals_for({"all"}, &Rival::latency).size(), 1U);
  EXPECT_TRUE(rivals_for({"none"}, &Rival::latency).empty());
}

TEST(Rivals, that_cannot_be_are_refused) {
  EXPECT_THROW(check_rivals({"flor"}, &Rival::latency), apps::UsageError);
  EXPECT_THROW(check_rivals({"floor"}, &Rival::halo), apps::UsageError);
  EXPECT_THROW(check_rivals({"floor", "mpi"}, &Rival::latency), apps::UsageError);
  EXPECT_NO_THROW(check_rivals({"floor", "all", "none"}, &Rival::latency));
}

}  // namespace
}  // namespace bench
