// SPDX-License-Identifier: Apache-2.0
// Whole fields, bit by bit, against the serial run; and what the method must do, so that both cannot be wrong alike.
#include "apps/common/space.hpp"
#include "apps/common/verify.hpp"
#include "apps/jacobi/reference.hpp"
#include "apps/jacobi/solver.hpp"
#include "tests/unit/serial.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace jacobi {
namespace {

struct Outcome {
  Solution solution;
  std::vector<double> norms;
};

template <class Model>
Outcome run_model(int ranks, const Options& options) {
  apps::serial();
  Outcome outcome;
  const int code = sluice::run_threads(ranks, [&](sluice::Context& context) {
    Simulation<Model, Kokkos::Serial> simulation(context, options.common, setup(options), Model{}, apps::serial());
    std::vector<double> norms;
    Solution solution = solve(simulation, options, true, [&](apps::Index, double norm) { norms.push_back(norm); });
    if (context.rank() == 0) outcome = {std::move(solution), std::move(norms)};
  });
  EXPECT_EQ(code, 0);
  return outcome;
}

Outcome run(int ranks, const Options& options) {
  return options.problem().has_planes() ? run_model<Volume>(ranks, options) : run_model<Plane>(ranks, options);
}

Options small(apps::Index nx, apps::Index ny, apps::Index iterations) {
  Options options;
  options.nx = nx;
  options.ny = ny;
  options.iterations = iterations;
  options.norm_every = 0;
  return options;
}

Options small(apps::Index nx, apps::Index ny, apps::Index nz, apps::Index iterations) {
  Options options = small(nx, ny, iterations);
  options.nz = nz;
  options.periodic_y = false;
  return options;
}

TEST(Jacobi, field_is_the_serial_one_bit_by_bit) {
  for (const auto stream : {apps::StreamKind::inline_, apps::StreamKind::host})
    for (const auto& [periodic_x, periodic_y] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}})
      for (const int ranks : {1, 2, 3, 4, 6}) {
        Options options = small(29, 23, 40);
        options.common.stream = stream;
        options.periodic_x = periodic_x;
        options.periodic_y = periodic_y;
        const auto expected = solve_serially(options.problem(), 40);
        const auto comparison = apps::compare<double>(run(ranks, options).solution.unknowns, expected);
        ASSERT_TRUE(comparison.passed()) << ranks << " ranks, periodic " << periodic_x << periodic_y;
      }
}

TEST(Jacobi, field_of_three_dimensions_is_the_serial_one_bit_by_bit) {
  for (const auto stream : {apps::StreamKind::inline_, apps::StreamKind::host})
    for (const int ranks : {1, 2, 3, 4, 6, 8, 12}) {
      Options options = small(17, 13, 11, 15);
      options.common.stream = stream;
      const auto expected = solve_serially(options.problem(), 15);
      const auto comparison = apps::compare<double>(run(ranks, options).solution.unknowns, expected);
      ASSERT_TRUE(comparison.passed()) << ranks << " ranks";
    }
}

TEST(Jacobi, blocks_of_one_row_or_column_work) {
  for (const auto& [nx, ny] : {std::pair<apps::Index, apps::Index>{6, 3}, {3, 6}, {4, 4}, {3, 3}}) {
    const Options options = small(nx, ny, 10);
    const int ranks = static_cast<int>((nx - 2) * (ny - 2));
    const auto expected = solve_serially(options.problem(), 10);
    EXPECT_TRUE(apps::compare<double>(run(ranks, options).solution.unknowns, expected).passed()) << nx << " x " << ny;
  }
}

TEST(Jacobi, norm_does_not_depend_on_the_ranks_beyond_rounding) {
  Options options = small(40, 30, 20);
  options.norm_every = 5;
  const auto alone = run(1, options).norms;
  ASSERT_EQ(alone.size(), 4U);
  for (const int ranks : {2, 3, 5}) {
    const auto norms = run(ranks, options).norms;
    ASSERT_EQ(norms.size(), alone.size());
    for (std::size_t i = 0; i < norms.size(); ++i) EXPECT_NEAR(norms[i], alone[i], 1e-12 * alone[i]);
  }
}

TEST(Jacobi, norm_is_the_change_of_the_last_iteration) {
  Options options = small(17, 19, 9);
  options.norm_every = 9;
  const auto before = solve_serially(options.problem(), 8);
  const auto after = solve_serially(options.problem(), 9);
  double sum = 0;
  for (std::size_t i = 0; i < after.size(); ++i) sum += (after[i] - before[i]) * (after[i] - before[i]);
  const auto norms = run(2, options).norms;
  ASSERT_EQ(norms.size(), 1U);
  EXPECT_NEAR(norms[0], std::sqrt(sum), 1e-12);
}

// Counts the fences of all execution spaces while it lives.
class Fences {
 public:
  Fences() {
    counted() = 0;
    Kokkos::Tools::Experimental::set_begin_fence_callback(
        [](const char*, std::uint32_t, std::uint64_t*) { ++counted(); });
  }
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;
  ~Fences() { Kokkos::Tools::Experimental::set_begin_fence_callback(nullptr); }
  int count() const { return counted(); }

 private:
  static std::atomic<int>& counted() {
    static std::atomic<int> count{0};
    return count;
  }
};

// How many fences all ranks together make from the first step until the last one has run.
int fences_of(const Options& options) {
  apps::serial();
  int count = -1;
  const int code = sluice::run_threads(2, [&](sluice::Context& context) {
    Simulation<Plane, Kokkos::Serial> simulation(context, options.common, setup(options), Plane{}, apps::serial());
    set_initial(options.problem(), simulation);
    simulation.start();
    std::optional<Fences> fences;
    if (context.rank() == 0) fences.emplace();
    simulation.session().collectives->barrier();
    iterate(options, simulation, [](apps::Index, double) {});
    simulation.stop("jacobi", options.iterations);
    if (fences) count = fences->count();
    fences.reset();
    simulation.session().collectives->barrier();
  });
  EXPECT_EQ(code, 0);
  return count;
}

TEST(Jacobi, steps_without_a_norm_make_no_fence) {
  for (const auto stream : {apps::StreamKind::inline_, apps::StreamKind::host}) {
    Options options = small(29, 23, 40);
    options.common.stream = stream;
    EXPECT_EQ(fences_of(options), 0);
    options.norm_every = 20;
    EXPECT_GT(fences_of(options), 0) << "the sum of a norm is waited for: are fences counted at all?";
  }
}

TEST(Jacobi, ends_when_the_norm_is_small) {
  Options options = small(12, 12, 100000);
  options.norm_every = 10;
  options.tolerance = 1e-6;
  const Outcome outcome = run(2, options);
  EXPECT_LT(outcome.solution.result.steps, 100000);
  EXPECT_LE(outcome.norms.back(), 1e-6);
}

// The block in the middle touches no fixed side but zeros: its own norm is 0 for many iterations.
TEST(Jacobi, makes_all_iterations_where_nothing_is_communicated) {
  Options options = small(302, 12, 30);
  options.norm_every = 1;
  options.common.comm = apps::Comm::none;
  apps::serial();
  std::vector<apps::Index> steps(3);
  std::vector<double> last_norms(3);
  const int code = sluice::run_threads(3, [&](sluice::Context& context) {
    Simulation<Plane, Kokkos::Serial> simulation(context, options.common, setup(options), Plane{}, apps::serial());
    const Solution solution =
        solve(simulation, options, false, [&](apps::Index, double norm) { last_norms[context.rank()] = norm; });
    steps[context.rank()] = solution.result.steps;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(steps, (std::vector<apps::Index>{30, 30, 30}));
  EXPECT_EQ(last_norms[1], 0) << "of three columns";
}

// A harmonic function is the mean of its neighbours: the discrete solution with a sine along both sides is known.
TEST(Jacobi, converges_to_the_known_solution) {
  Options options = small(34, 34, 20000);
  options.periodic_y = false;
  const auto field = run(4, options).solution.unknowns;
  const double h = 3.14159265358979323846 * 2 / 33;
  const double k = std::acosh(2 - std::cos(h));
  for (apps::Index y = 1; y < 33; ++y)
    for (apps::Index x = 1; x < 33; ++x) {
      const double along = std::cosh(k * (static_cast<double>(x) - 16.5)) / std::cosh(k * 16.5);
      ASSERT_NEAR(field[(y - 1) * 32 + x - 1], along * std::sin(h * static_cast<double>(y)), 1e-9);
    }
}

// The mean of the 26 neighbours, of a product of sines of y and z: 27 / 26 of the mean with the point itself.
TEST(Jacobi, converges_to_the_known_solution_in_three_dimensions) {
  constexpr apps::Index kPoints = 18;
  const Options options = small(kPoints, kPoints, kPoints, 3000);
  const auto field = run(4, options).solution.unknowns;
  const double last = kPoints - 1;
  const double h = 2 * 3.14159265358979323846 / last;
  const double along_yz = (1 + 2 * std::cos(h)) * (1 + 2 * std::cos(h));
  const double k = std::acosh((27 / along_yz - 1) / 2);
  for (apps::Index z = 1; z < kPoints - 1; ++z)
    for (apps::Index y = 1; y < kPoints - 1; ++y)
      for (apps::Index x = 1; x < kPoints - 1; ++x) {
        const double along_x = std::cosh(k * (static_cast<double>(x) - last / 2)) / std::cosh(k * last / 2);
        const double expected = along_x * std::sin(h * static_cast<double>(y)) * std::sin(h * static_cast<double>(z));
        const apps::Index row = (z - 1) * (kPoints - 2) + y - 1;
        ASSERT_NEAR(field[row * (kPoints - 2) + x - 1], expected, 1e-9) << x << " " << y << " " << z;
      }
}

TEST(Compare, finds_one_wrong_bit) {
  const std::vector<double> expected = {1.0, 0.0, 3.0};
  std::vector<double> found = expected;
  EXPECT_EQ(apps::verification_line(apps::compare<double>(found, expected), {.nx = 3, .ny = 1}),
            "VERIFICATION: PASSED");
  found[1] = -0.0;
  EXPECT_EQ(apps::compare<double>(found, expected).differing, 1);
  found[2] = 3.5;
  EXPECT_EQ(apps::verification_line(apps::compare<double>(found, expected), {.nx = 3, .ny = 1}),
            "VERIFICATION: FAILED 2 of 3 cells differ, the first at x=1 y=0, max_abs_err=0.5");
}

}  // namespace
}  // namespace jacobi
