// SPDX-License-Identifier: Apache-2.0
// Transforms against their definition, on any number of ranks.
#include "apps/common/usage_error.hpp"
#include "apps/fft/reference.hpp"
#include "apps/fft/solver.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace fft {
namespace {

Options box(Index nx, Index ny, Index nz, int slabs) {
  Options options;
  options.nx = nx;
  options.ny = ny;
  options.nz = nz;
  options.slabs = slabs;
  return options;
}

TEST(Fft, transform_is_that_of_the_definition_and_its_inverse_gives_the_cells_back) {
  for (const int ranks : {1, 2, 3, 4, 6})
    for (const auto stream : {apps::StreamKind::inline_, apps::StreamKind::host}) {
      Options options = box(7, 6, 9, ranks == 4 ? 3 : 1);
      options.common.stream = stream;
      const std::vector<Complex> expected = transform_serially(options.mesh());
      const int code = sluice::run_threads(ranks, [&](sluice::Context& context) {
        Solver solver(context, options);
        solver.set_initial();
        solver.forward();
        solver.synchronize();
        const std::vector<Complex> found = solver.gather();
        double error = 0;
        for (std::size_t i = 0; i < found.size(); ++i) error = std::max(error, std::abs(found[i] - expected[i]));
        EXPECT_LT(error, 1e-10) << ranks << " ranks";
        solver.backward();
        solver.synchronize();
        EXPECT_LT(solver.error(), 1e-13) << ranks << " ranks";
      });
      ASSERT_EQ(code, 0);
    }
}

/// The stream still transforms lines and packs them.
TEST(Fft, what_the_stream_uses_outlives_it_when_a_rank_throws) {
  Options options = box(64, 64, 64, 2);
  options.common.stream = apps::StreamKind::host;
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    try {
      Solver solver(context, options);
      solver.set_initial();
      for (int step = 0; step < 3; ++step) {
        solver.forward();
        solver.backward();
      }
      throw std::runtime_error("of the test");
    } catch (const std::runtime_error& thrown) {
      EXPECT_STREQ(thrown.what(), "of the test");
    }
  });
  EXPECT_EQ(code, 0);
}

TEST(Pencils, each_cell_is_of_one_rank_along_each_axis) {
  for (const int ranks : {1, 2, 3, 4, 6, 12}) {
    const apps::Pencils pencils({.nx = 5, .ny = 7, .nz = 4}, ranks);
    for (const int axis : {0, 1, 2}) {
      std::vector<int> owners(5 * 7 * 4);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto [xs, ys, zs] = pencils.pencil(axis, rank).block;
        for (Index z = zs.begin; z < zs.begin + zs.length; ++z)
          for (Index y = ys.begin; y < ys.begin + ys.length; ++y)
            for (Index x = xs.begin; x < xs.begin + xs.length; ++x)
              ++owners[static_cast<std::size_t>((z * 7 + y) * 5 + x)];
      }
      EXPECT_EQ(std::ranges::count(owners, 1), 5 * 7 * 4) << ranks << " ranks, axis " << axis;
    }
  }
}

TEST(Pencils, more_ranks_than_pencils_are_refused) {
  EXPECT_THROW(apps::Pencils({.nx = 4, .ny = 4, .nz = 4}, 7), apps::UsageError);
  EXPECT_THROW(apps::Pencils({.nx = 2, .ny = 2, .nz = 2}, 8), apps::UsageError);
}

}  // namespace
}  // namespace fft
