// SPDX-License-Identifier: Apache-2.0
// Benches in a program without Kokkos.
#include "apps/bench/benches.hpp"
#include "apps/bench/ours/packing.hpp"
#include "apps/common/usage_error.hpp"

#include <gtest/gtest.h>

namespace bench {
namespace {

TEST(Packing, says_in_one_line_that_it_is_not_in_the_program) {
  Options options;
  options.bench = "packing";
  try {
    choose(options, 2);
    FAIL() << "not refused";
  } catch (const apps::UsageError& refused) {
    EXPECT_STREQ(refused.what(), "packing is not in this sluice-bench: it was built without Kokkos");
  }
}

TEST(Packing, is_all_that_is_missing) {
  Options options;
  options.bench = "latency";
  EXPECT_NO_THROW(choose(options, 2));
  EXPECT_EQ(start_kokkos("packing"), nullptr);
}

}  // namespace
}  // namespace bench
