// SPDX-License-Identifier: Apache-2.0
// The index of a landing is found at once, however many landings there are.
#include <gtest/gtest.h>

#include "backends/ofi/by_number.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/conformance/counting.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

/// The instructions of taking an index, and of giving it back, while so many are taken.
SystemCalls instructions_of_an_index(int taken) {
  return count_system_calls([&] {
    const backends::ofi::Manner manner;
    backends::ofi::Arrivals arrivals(manner);
    const auto take = [&] { return arrivals.add(backends::Counters{}); };
    for (int i = 0; i < taken; ++i) take();
    arrivals.remove(take());
    begin_stepping();
    arrivals.remove(take());
    end_stepping();
    return 0;
  });
}

TEST(Instructions, of_an_index_do_not_grow_with_the_landings) {
  const SystemCalls few = instructions_of_an_index(100), many = instructions_of_an_index(10'000);
  if (!few.why_not.empty()) return skipped_here(few.why_not);
  EXPECT_EQ(few.exit_code, 0);
  EXPECT_EQ(many.exit_code, 0);
  EXPECT_GT(few.instructions, 50U) << "not stepped";
  EXPECT_LT(many.instructions, few.instructions + 1000) << "a look at all takes 20,000 and more";
}

}  // namespace
