// SPDX-License-Identifier: Apache-2.0
// The GPU form of the applications on one core: a cell for each call of a kernel, and the field in memory of its own.
#include "apps/common/space.hpp"

namespace apps {
template <>
inline constexpr bool kOnGpu<Kokkos::Serial> = true;
}  // namespace apps

#include <sluice/kokkos/moves.hpp>
namespace sluice::kokkos::detail {
template <>
inline constexpr bool kByElement<Kokkos::Serial> = true;
}  // namespace sluice::kokkos::detail

#include "apps/common/verify.hpp"
#include "apps/faces/reference.hpp"
#include "apps/faces/solver.hpp"
#include "apps/heat/reference.hpp"
#include "apps/heat/solver.hpp"
#include "apps/jacobi/reference.hpp"
#include "apps/jacobi/solver.hpp"
#include "apps/life/reference.hpp"
#include "apps/life/solver.hpp"
#include "tests/unit/serial.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace apps {
namespace {

struct Way {
  int ranks;
  StreamKind stream;
  Comm comm;
};

TEST(Chunks, are_found_in_planes_of_more_than_32_bits) {
  constexpr Index kFew = 1000003;
  constexpr Index kMany = (Index{1} << 32) + 5;
  for (const auto& [number, by] :
       {std::pair{kFew, Index{7}}, {kMany, Index{3}}, {3 * kMany + 1, kMany}, {kFew, kMany}}) {
    const Quotient found = divide(number, by);
    EXPECT_EQ(found.whole * by + found.remainder, number);
    EXPECT_GE(found.remainder, 0);
    EXPECT_LT(found.remainder, by);
  }
}

class Cells : public testing::TestWithParam<Way> {
 protected:
  template <class Options>
  Options on_its_way(Options options) const {
    options.common.stream = GetParam().stream;
    options.common.comm = GetParam().comm;
    return options;
  }
};

template <class Model>
jacobi::Solution relax(const Way& way, const jacobi::Options& options, std::vector<double>& norms) {
  serial();
  jacobi::Solution at_root;
  const int code = sluice::run_threads(way.ranks, [&](sluice::Context& context) {
    const bool first = context.rank() == 0;
    jacobi::Simulation<Model, Kokkos::Serial> simulation(context, options.common, jacobi::setup(options), {}, serial());
    jacobi::Solution solution = jacobi::solve(simulation, options, true, [&](Index, double norm) {
      if (first) norms.push_back(norm);
    });
    if (first) at_root = std::move(solution);
  });
  EXPECT_EQ(code, 0);
  return at_root;
}

TEST_P(Cells, of_jacobi_are_the_serial_ones_bit_by_bit) {
  for (const auto& [periodic_x, periodic_y] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    jacobi::Options options = on_its_way(jacobi::Options{});
    options.nx = 29;
    options.ny = 23;
    options.iterations = 40;
    options.norm_every = 0;
    options.periodic_x = periodic_x;
    options.periodic_y = periodic_y;
    std::vector<double> norms;
    const auto found = relax<jacobi::Plane>(GetParam(), options, norms).unknowns;
    EXPECT_TRUE(compare<double>(found, jacobi::solve_serially(options.problem(), 40)).passed())
        << "periodic " << periodic_x << periodic_y;
  }
}

TEST_P(Cells, of_a_volume_are_the_serial_ones_bit_by_bit) {
  jacobi::Options options = on_its_way(jacobi::Options{});
  options.nx = 13;
  options.ny = 11;
  options.nz = 9;
  options.periodic_y = false;
  options.iterations = 20;
  options.norm_every = 0;
  std::vector<double> norms;
  const auto found = relax<jacobi::Volume>(GetParam(), options, norms).unknowns;
  EXPECT_TRUE(compare<double>(found, jacobi::solve_serially(options.problem(), 20)).passed());
}

TEST_P(Cells, are_all_measured) {
  jacobi::Options options = on_its_way(jacobi::Options{});
  options.nx = 17;
  options.ny = 19;
  options.iterations = options.norm_every = 9;
  const auto before = jacobi::solve_serially(options.problem(), 8);
  const auto after = jacobi::solve_serially(options.problem(), 9);
  double sum = 0;
  for (std::size_t i = 0; i < after.size(); ++i) sum += (after[i] - before[i]) * (after[i] - before[i]);
  std::vector<double> norms;
  relax<jacobi::Plane>(GetParam(), options, norms);
  ASSERT_EQ(norms.size(), 1U);
  EXPECT_NEAR(norms[0], std::sqrt(sum), 1e-12);
}

TEST_P(Cells, of_heat_are_the_serial_ones) {
  heat::Options options = on_its_way(heat::Options{});
  options.nx = 13;
  options.ny = 10;
  options.nz = 8;
  options.steps = 20;
  options.fourier = 0.125;
  serial();
  heat::Solution at_root;
  const int code = sluice::run_threads(GetParam().ranks, [&](sluice::Context& context) {
    heat::Simulation<3, Kokkos::Serial> simulation(context, options.common,
                                                   heat::setup(options.problem(), options.steps),
                                                   heat::Model<3>{options.fourier}, serial());
    heat::Solution solution = heat::solve<3>(simulation, options, true);
    if (context.rank() == 0) at_root = std::move(solution);
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(compare<double>(at_root.cells, heat::solve_serially(options.problem(), options.steps)).passed());
  EXPECT_TRUE(at_root.balance->kept(options.steps));
}

TEST_P(Cells, of_faces_are_the_serial_ones) {
  const faces::Options options = on_its_way(faces::Options{});
  const faces::Problem problem = faces::make_problem(GetParam().ranks, 5);
  serial();
  std::vector<double> found;
  const int code = sluice::run_threads(GetParam().ranks, [&](sluice::Context& context) {
    faces::Simulation<Kokkos::Serial> simulation(context, options.common, faces::setup(problem, 9), {}, serial());
    faces::Solution solution = faces::solve(simulation, problem, 9, true);
    if (context.rank() == 0) found = std::move(solution.copies);
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(compare<double>(found, faces::solve_serially(problem, 9)).passed());
}

TEST_P(Cells, of_life_are_the_serial_ones) {
  const life::World world{.nx = 37, .ny = 21, .rule = {}, .cells = {}, .density = 0.4, .seed = 5};
  life::Options options = on_its_way(life::Options{});
  options.generations = 30;
  serial();
  std::vector<life::Cell> found;
  const int code = sluice::run_threads(GetParam().ranks, [&](sluice::Context& context) {
    life::Simulation<Kokkos::Serial> simulation(context, options.common, life::setup(options, world),
                                                life::Model(world.rule), serial());
    life::Solution solution = life::solve(simulation, options, world, true);
    if (context.rank() == 0) found = std::move(solution.cells);
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(found, life::live_serially(world, 30));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Cells,
    testing::Values(Way{1, StreamKind::inline_, Comm::sluice}, Way{2, StreamKind::host, Comm::sluice},
                    Way{4, StreamKind::inline_, Comm::sluice}, Way{6, StreamKind::host, Comm::sluice},
                    Way{2, StreamKind::inline_, Comm::copies}, Way{4, StreamKind::host, Comm::copies}),
    [](const auto& way) {
      return std::to_string(way.param.ranks) + name(way.param.stream) + "_" + name(way.param.comm);
    });

}  // namespace
}  // namespace apps
