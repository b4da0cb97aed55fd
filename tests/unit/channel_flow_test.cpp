// SPDX-License-Identifier: Apache-2.0
// Whole velocities against the serial run, and what pressure is for.
#include "apps/channel_flow/reference.hpp"
#include "apps/channel_flow/solver.hpp"
#include "apps/common/verify.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>

namespace channel_flow {
namespace {

TEST(ChannelFlow, velocity_is_the_serial_one_and_free_of_divergence) {
  for (const int ranks : {1, 2, 3, 4, 6})
    for (const auto stream : {apps::StreamKind::inline_, apps::StreamKind::host}) {
      Options options;
      options.nx = 6;
      options.ny = 7;
      options.nz = 8;
      options.steps = 2;
      options.slabs = ranks == 3 ? 1 : 2;
      options.common.stream = stream;
      const auto expected = solve_serially(options.mesh(), options.steps);
      const int code = sluice::run_threads(ranks, [&](sluice::Context& context) {
        Solver solver(context, options);
        solver.start();
        for (Index step = 0; step < options.steps; ++step) solver.step();
        solver.stop();
        EXPECT_LT(solver.divergence(), 1e-13) << ranks << " ranks";
        for (int component = 0; component < kComponents; ++component) {
          const auto found = solver.gather(component);
          if (context.rank() > 0) continue;
          const auto& wanted = expected[static_cast<std::size_t>(component)];
          EXPECT_TRUE(apps::compare<double>(found, wanted, 1e-12).passed()) << ranks << " ranks";
        }
      });
      ASSERT_EQ(code, 0);
    }
}

/// The stream still has steps to do.
TEST(ChannelFlow, what_the_stream_uses_outlives_it_when_a_rank_throws) {
  Options options;
  options.nx = options.ny = options.nz = 48;
  options.slabs = 2;
  options.common.stream = apps::StreamKind::host;
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    try {
      Solver solver(context, options);
      solver.start();
      for (Index step = 0; step < 3; ++step) solver.step();
      throw std::runtime_error("of the test");
    } catch (const std::runtime_error& thrown) {
      EXPECT_STREQ(thrown.what(), "of the test");
    }
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace channel_flow
