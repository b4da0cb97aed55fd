// SPDX-License-Identifier: Apache-2.0
// Whole fields, bit by bit, against the serial run; and what physics says, so that both cannot be wrong alike.
#include "apps/common/space.hpp"
#include "apps/common/verify.hpp"
#include "apps/heat/reference.hpp"
#include "apps/heat/solver.hpp"
#include "tests/unit/serial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heat {
namespace {

template <std::size_t D>
Solution run_in(int ranks, const Options& options, bool twice = true) {
  apps::serial();
  Solution at_root;
  const int code = sluice::run_threads(ranks, [&](sluice::Context& context) {
    Solution solution;
    {
      Simulation<D, Kokkos::Serial> simulation(context, options.common, setup(options.problem(), options.steps),
                                               Model<D>{options.fourier}, apps::serial());
      solution = solve<D>(simulation, options, true);
    }
    if (twice) solution.accuracy->coarse_error = coarse_error<D>(context, options, apps::serial());
    if (context.rank() == 0) at_root = std::move(solution);
  });
  EXPECT_EQ(code, 0);
  return at_root;
}

Solution run(int ranks, const Options& options) {
  return options.problem().has_planes() ? run_in<3>(ranks, options) : run_in<2>(ranks, options);
}

Options small(Index nx, Index ny, Index nz, Index steps) {
  Options options;
  options.nx = nx;
  options.ny = ny;
  options.nz = nz;
  options.steps = steps;
  options.fourier = nz > 1 ? 0.125 : 0.2;
  return options;
}

TEST(Heat, field_is_the_serial_one_bit_by_bit) {
  for (const auto stream : {apps::StreamKind::inline_, apps::StreamKind::host})
    for (const Index nz : {1, 10})
      for (const int ranks : {1, 2, 3, 4, 6}) {
        Options options = small(22, 18, nz, 24);
        options.common.stream = stream;
        const auto comparison = apps::compare<double>(run(ranks, options).cells, solve_serially(options.problem(), 24));
        ASSERT_TRUE(comparison.passed()) << ranks << " ranks, nz " << nz;
      }
}

TEST(Heat, is_kept_and_spreads_as_the_equation_says) {
  for (const Options& options : {small(64, 48, 1, 200), small(32, 24, 28, 80)}) {
    const Solution solution = run(4, options);
    EXPECT_TRUE(solution.balance->kept(options.steps));
    EXPECT_NEAR(solution.balance->before, static_cast<double>(options.problem().mesh().cells()), 1e-9);
    EXPECT_LT(solution.accuracy->error, 0.01);
    EXPECT_NEAR(*solution.accuracy->order(options.steps), 2, 0.2);
  }
}

TEST(Heat, order_of_rounding_is_not_told) {
  for (const auto& [n, steps] : {std::pair<Index, Index>{32, 4000}, {12, 400}, {6, 200}}) {
    const Solution solution = run(1, small(n, n, 1, steps));
    EXPECT_LT(solution.accuracy->error, 1e-13);
    EXPECT_EQ(solution.accuracy->order(steps), std::nullopt) << n;
  }
  constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ((Accuracy{0.01, 1e-16}.order(10)), std::nullopt);
  EXPECT_EQ((Accuracy{kNoNumber, 0.01}.order(10)), std::nullopt);
  EXPECT_EQ((Accuracy{0.01, kNoNumber}.order(10)), std::nullopt);
  EXPECT_EQ((Accuracy{0.01, {}}.order(10)), std::nullopt);
  EXPECT_EQ((Accuracy{0.01, 0.04}.order(10)), 2);
}

TEST(Heat, that_is_no_number_is_no_small_error) {
  Options options = small(12, 12, 1, 4);
  options.fourier = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(run(2, options).accuracy->error, std::numeric_limits<double>::infinity());
}

TEST(Heat, of_spots_that_no_cell_meets_is_kept) {
  Options options = small(3, 3, 1, 5);
  options.start = Start::spots;
  const Solution solution = run_in<2>(1, options, false);
  EXPECT_EQ(solution.balance->before, 0);
  EXPECT_TRUE(solution.balance->kept(options.steps));
}

TEST(Heat, that_is_lost_shows) {
  const Balance kept{1000, 1000 * (1 + 1e-16)};
  EXPECT_TRUE(kept.kept(10));
  const Balance lost{1000, 1000 * (1 - 1e-12)};
  EXPECT_FALSE(lost.kept(10));
}

TEST(Heat, of_spots_flattens) {
  Options options = small(30, 20, 1, 0);
  options.start = Start::spots;
  const auto start = solve_serially(options.problem(), 0);
  const auto later = solve_serially(options.problem(), 50);
  const auto spread = [](const std::vector<double>& cells) {
    const auto [least, most] = std::ranges::minmax(cells);
    return most - least;
  };
  EXPECT_EQ(spread(start), 1);
  EXPECT_LT(spread(later), 0.9);
}

TEST(Heat, order_is_told_where_it_can_be) {
  EXPECT_EQ(why_no_order(small(64, 64, 1, 100), 4), "");
  EXPECT_NE(why_no_order(small(63, 64, 1, 100), 4), "");
  EXPECT_NE(why_no_order(small(64, 64, 5, 100), 4), "");
  EXPECT_NE(why_no_order(small(64, 64, 1, 99), 4), "");
  EXPECT_NE(why_no_order(small(6, 6, 1, 100), 11), "");
}

TEST(Heat, on_its_way_is_that_of_its_step) {
  Options options = small(20, 14, 1, 11);
  options.frames.write_every = 4;
  apps::serial();
  std::vector<Index> written;
  const int code = sluice::run_threads(2, [&](sluice::Context& context) {
    Simulation<2, Kokkos::Serial> simulation(context, options.common, setup(options.problem(), options.steps),
                                             Model<2>{options.fourier}, apps::serial());
    solve<2>(simulation, options, false, [&](Index step, std::span<const double> cells) {
      written.push_back(step);
      EXPECT_TRUE(std::ranges::equal(cells, solve_serially(options.problem(), step))) << step;
    });
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(written, (std::vector<Index>{4, 8}));
}

}  // namespace
}  // namespace heat
