// SPDX-License-Identifier: Apache-2.0
// Whole fields, bit by bit, against the serial run; and what must become of one copy of a node at a corner.
#include "apps/common/space.hpp"
#include "apps/common/verify.hpp"
#include "apps/faces/reference.hpp"
#include "apps/faces/solver.hpp"
#include "tests/unit/serial.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace faces {
namespace {

template <class Body>
void on_ranks(int ranks, const Options& options, const Body& body) {
  apps::serial();
  const Problem problem = make_problem(ranks, options.nodes);
  const int code = sluice::run_threads(ranks, [&](sluice::Context& context) {
    Simulation<Kokkos::Serial> simulation(context, options.common, setup(problem, options.steps), {}, apps::serial());
    body(context, simulation, problem);
  });
  EXPECT_EQ(code, 0);
}

TEST(Faces, field_is_the_serial_one_bit_by_bit) {
  for (const auto stream : {apps::StreamKind::inline_, apps::StreamKind::host})
    for (const Index nodes : {2, 3, 7})
      for (const int ranks : {1, 2, 3, 4, 6, 8}) {
        Options options;
        options.nodes = nodes;
        options.steps = 12;
        options.common.stream = stream;
        on_ranks(ranks, options, [&](sluice::Context& context, auto& simulation, const Problem& problem) {
          const Solution solution = solve(simulation, problem, options.steps, true);
          if (context.rank() != 0) return;
          const auto expected = solve_serially(problem, options.steps);
          EXPECT_TRUE(apps::compare<double>(solution.copies, expected).passed()) << ranks << " ranks, " << nodes;
        });
      }
}

// Eight blocks have a copy of a node at a corner. One has 16 there, all else is 0: each then has half of the mean, 2.
TEST(Faces, copies_of_a_corner_are_added_up) {
  Options options;
  options.nodes = 4;
  on_ranks(8, options, [&](sluice::Context& context, auto& simulation, const Problem& problem) {
    const apps::Strides strides = simulation.strides();
    if (context.rank() == 0) simulation.initial(0)[strides.offset(3, 3, 3)] = 16;
    simulation.start();
    simulation.step();
    simulation.stop("faces", 1);
    const std::vector<double> copies = simulation.gather();
    if (context.rank() != 0) return;
    const apps::Mesh mesh = problem.mesh();
    const auto at = [&](Index x, Index y, Index z) {
      return copies[static_cast<std::size_t>((z * mesh.ny + y) * mesh.nx + x)];
    };
    double elsewhere = 0;
    for (Index z = 0; z < mesh.nz; ++z)
      for (Index y = 0; y < mesh.ny; ++y)
        for (Index x = 0; x < mesh.nx; ++x) {
          const bool copy = (x == 3 || x == 4) && (y == 3 || y == 4) && (z == 3 || z == 4);
          if (copy) {
            EXPECT_EQ(at(x, y, z), 1) << x << " " << y << " " << z;
          } else {
            elsewhere += at(x, y, z);
          }
        }
    // Its three neighbours in its own block are on edges, with four neighbours each.
    EXPECT_EQ(at(2, 3, 3), 0.5 * 16 / 4);
    EXPECT_EQ(elsewhere, 3 * 0.5 * 16 / 4);
  });
}

TEST(Faces, blocks_make_a_grid_as_near_to_a_cube_as_can_be) {
  EXPECT_EQ(make_problem(1, 4).grid, (std::array{1, 1, 1}));
  EXPECT_EQ(make_problem(2, 4).grid, (std::array{2, 1, 1}));
  EXPECT_EQ(make_problem(7, 4).grid, (std::array{7, 1, 1}));
  EXPECT_EQ(make_problem(8, 4).grid, (std::array{2, 2, 2}));
  EXPECT_EQ(make_problem(12, 4).grid, (std::array{3, 2, 2}));
  EXPECT_EQ(make_problem(12, 4).mesh().nz, 12);
}

}  // namespace
}  // namespace faces
