// SPDX-License-Identifier: Apache-2.0
// Programs compute with instructions that the serial reference was not compiled for.
#include "apps/heat/model.hpp"
#include "apps/heat/problem.hpp"
#include "apps/heat/reference.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace heat {
namespace {

// One step with what this file is compiled for: rows with a ghost at each end, and a row of ghosts before and behind.
std::vector<double> step(const Problem& problem) {
  const auto& [nx, ny, nz, fourier, start] = problem;
  const apps::Strides strides{nx + 2, 0};
  std::vector<double> ghosted;
  for (Index y = 0; y < ny + 2; ++y)
    for (Index x = 0; x < nx + 2; ++x) ghosted.push_back(problem.initial((x + nx - 1) % nx, (y + ny - 1) % ny, 0));
  std::vector<double> next(static_cast<std::size_t>(nx * ny));
  for (Index y = 0; y < ny; ++y)
    Model<2>{fourier}.row(ghosted.data() + strides.offset(1, y + 1, 0), strides, next.data() + y * nx, nx);
  return next;
}

TEST(Contraction, of_products_and_sums_does_not_tell_a_field_from_the_serial_one) {
  const Problem problem{64, 48, 1, 0.2, Start::sine};
  EXPECT_EQ(step(problem), solve_serially(problem, 1));
}

}  // namespace
}  // namespace heat
