// SPDX-License-Identifier: Apache-2.0
#include "apps/common/parts.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>

namespace apps {
namespace {

using Cells = std::map<std::array<Index, 3>, int>;

template <class Visit>
void each_cell(const Box& box, Visit visit) {
  for (Index z = box.z; z < box.z + box.nz; ++z)
    for (Index y = box.y; y < box.y + box.ny; ++y)
      for (Index x = box.x; x < box.x + box.nx; ++x) visit({x, y, z});
}

// With each number of ranks that the mesh has cells for, up to twelve.
template <class Check>
void each_block(const Mesh& mesh, Check check) {
  for (int ranks = 1; ranks <= 12; ++ranks) {
    const Decomposition decomposition(mesh, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(testing::Message() << "rank " << rank << " of " << ranks);
      check(decomposition, rank);
    }
  }
}

class Meshes : public testing::TestWithParam<Mesh> {};

TEST_P(Meshes, are_divided_without_a_gap_or_an_overlap) {
  each_block(GetParam(), [](const Decomposition& decomposition, int rank) {
    const Parts parts = divide(decomposition, rank);
    Cells seen;
    const auto see = [&](const std::array<Index, 3>& at) { ++seen[at]; };
    each_cell(parts.interior, see);
    EXPECT_LE(parts.boundary.size(), 6U);
    for (const Box& box : parts.boundary) {
      EXPECT_GT(box.cells(), 0);
      each_cell(box, see);
    }
    const Box block = decomposition.box(rank);
    each_cell({0, 0, 0, block.nx, block.ny, block.nz}, [&](const std::array<Index, 3>& at) { EXPECT_EQ(seen[at], 1); });
    EXPECT_EQ(static_cast<Index>(seen.size()), block.cells());
  });
}

TEST_P(Meshes, have_interiors_that_read_no_ghost_that_comes) {
  each_block(GetParam(), [](const Decomposition& decomposition, int rank) {
    const Box block = decomposition.box(rank);
    const Box inner = divide(decomposition, rank).interior;
    if (inner.cells() == 0) return;
    const auto neighbour = [&](int z, int y, int x) {
      const auto peer = decomposition.grid<3>().neighbour(rank, {z, y, x});
      return peer && *peer != rank;
    };
    EXPECT_TRUE(inner.x > 0 || !neighbour(0, 0, -1));
    EXPECT_TRUE(inner.y > 0 || !neighbour(0, -1, 0));
    EXPECT_TRUE(inner.z > 0 || !neighbour(-1, 0, 0));
    EXPECT_TRUE(inner.x + inner.nx < block.nx || !neighbour(0, 0, 1));
    EXPECT_TRUE(inner.y + inner.ny < block.ny || !neighbour(0, 1, 0));
    EXPECT_TRUE(inner.z + inner.nz < block.nz || !neighbour(1, 0, 0));
  });
}

INSTANTIATE_TEST_SUITE_P(Parts, Meshes,
                         testing::Values(Mesh{.nx = 13, .ny = 11}, Mesh{.nx = 9, .ny = 11, .periodic_x = true},
                                         Mesh{.nx = 12, .ny = 1, .periodic_x = true, .periodic_y = true},
                                         Mesh{.nx = 1, .ny = 12}, Mesh{.nx = 7, .ny = 6, .nz = 11},
                                         Mesh{.nx = 3, .ny = 4, .nz = 12, .periodic_x = true, .periodic_z = true}));

TEST(Parts, interior_is_all_that_is_not_next_to_a_neighbour) {
  const Parts alone = divide(Decomposition({.nx = 8, .ny = 6, .nz = 5}, 1), 0);
  EXPECT_EQ(alone.interior, (Box{0, 0, 0, 8, 6, 5}));
  EXPECT_TRUE(alone.boundary.empty());
  const Parts torus = divide(Decomposition({.nx = 8, .ny = 6, .nz = 5, .periodic_y = true}, 1), 0);
  EXPECT_EQ(torus.interior, alone.interior) << "a rank that is its own neighbour gets no message";
  const Parts lower = divide(Decomposition({.nx = 8, .ny = 6, .nz = 10}, 2), 0);
  EXPECT_EQ(lower.interior, (Box{0, 0, 0, 8, 6, 4}));
  EXPECT_EQ(lower.boundary, (std::vector<Box>{{0, 0, 4, 8, 6, 1}}));
}

}  // namespace
}  // namespace apps
