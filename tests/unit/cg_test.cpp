// SPDX-License-Identifier: Apache-2.0
// The pipelined method against the textbook's.
#include "apps/cg/reference.hpp"
#include "apps/cg/solver.hpp"
#include "apps/common/space.hpp"
#include "apps/common/verify.hpp"
#include "tests/unit/serial.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

namespace cg {
namespace {

template <std::size_t D>
Solution run(int ranks, const Options& options) {
  apps::serial();
  Solution outcome;
  const int code = sluice::run_threads(ranks, [&](sluice::Context& context) {
    Simulation<D, Kokkos::Serial> simulation(context, options.common, setup(options), Laplacian<D>{}, apps::serial());
    Solution solution = solve<D>(simulation, options, true, [](Index, double) {});
    if (context.rank() == 0) outcome = std::move(solution);
  });
  EXPECT_EQ(code, 0);
  return outcome;
}

Options of_box(Index nx, Index ny, Index nz, Index iterations) {
  Options options;
  options.nx = nx;
  options.ny = ny;
  options.nz = nz;
  options.iterations = iterations;
  options.check_every = 0;
  return options;
}

TEST(Cg, iterates_are_those_of_the_textbook_but_for_rounding) {
  for (const auto stream : {apps::StreamKind::inline_, apps::StreamKind::host})
    for (const int ranks : {1, 2, 3, 6})
      for (const Index iterations : {1, 25}) {
        Options plane = of_box(23, 17, 1, iterations);
        Options volume = of_box(11, 9, 8, iterations);
        plane.common.stream = volume.common.stream = stream;
        const auto in_plane = solve_serially(plane.problem(), iterations);
        EXPECT_TRUE(apps::compare<double>(run<2>(ranks, plane).cells, in_plane, 1e-11).passed()) << ranks << " ranks";
        const auto in_volume = solve_serially(volume.problem(), iterations);
        EXPECT_TRUE(apps::compare<double>(run<3>(ranks, volume).cells, in_volume, 1e-11).passed()) << ranks << " ranks";
      }
}

TEST(Cg, run_ends_when_the_residual_is_small_and_true) {
  Options options = of_box(23, 17, 1, 1000);
  options.check_every = 1;
  options.tolerance = 1e-6;
  const Solution solution = run<2>(3, options);
  EXPECT_LT(solution.result.steps, 100);
  EXPECT_LE(solution.residual, 1e-6);
  EXPECT_LE(solution.true_residual.value(), 1e-6);
}

TEST(Cg, iterations_beyond_rounding_change_nothing) {
  const Solution after = run<2>(2, of_box(9, 8, 1, 5000));
  EXPECT_LE(after.true_residual.value(), 1e-8);
  for (const double cell : after.cells) ASSERT_TRUE(std::isfinite(cell));
}

/// The stream still has iterations to do.
TEST(Cg, what_the_stream_uses_outlives_it_when_a_rank_throws) {
  apps::serial();
  Options options = of_box(512, 512, 1, 20);
  options.common.stream = apps::StreamKind::host;
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    Simulation<2, Kokkos::Serial> simulation(context, options.common, setup(options), Laplacian<2>{}, apps::serial());
    try {
      Method<2, Kokkos::Serial> method(simulation, options.problem());
      simulation.start();
      method.begin();
      for (Index i = 0; i < options.iterations; ++i) method.iterate();
      throw std::runtime_error("of the test");
    } catch (const std::runtime_error& thrown) {
      EXPECT_STREQ(thrown.what(), "of the test");
    }
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace cg
