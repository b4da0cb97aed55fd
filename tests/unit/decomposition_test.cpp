// SPDX-License-Identifier: Apache-2.0
#include "apps/common/decomposition.hpp"

#include "apps/common/usage_error.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace apps {
namespace {

void expect_one_owner_each(const Mesh& mesh, int ranks) {
  const Decomposition decomposition(mesh, ranks);
  ASSERT_EQ(decomposition.ranks(), ranks);
  std::vector<int> owners(static_cast<std::size_t>(mesh.cells()));
  for (int rank = 0; rank < ranks; ++rank) {
    const Box box = decomposition.box(rank);
    for (Index z = box.z; z < box.z + box.nz; ++z)
      for (Index y = box.y; y < box.y + box.ny; ++y)
        for (Index x = box.x; x < box.x + box.nx; ++x) ++owners[(z * mesh.ny + y) * mesh.nx + x];
  }
  for (const int count : owners) ASSERT_EQ(count, 1) << ranks << " ranks";
}

TEST(Decomposition, every_cell_has_one_owner) {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    expect_one_owner_each({.nx = 37, .ny = 29, .periodic_x = true}, ranks);
    expect_one_owner_each({.nx = 19, .ny = 23, .nz = 17, .periodic_z = true}, ranks);
  }
}

TEST(Decomposition, sides_differ_by_one_cell_at_most) {
  const Decomposition decomposition({.nx = 100, .ny = 70}, 12);
  for (int rank = 0; rank < 12; ++rank) {
    const Box box = decomposition.box(rank);
    for (const Index more : {box.nx - 100 / decomposition.columns(), box.ny - 70 / decomposition.rows()}) {
      EXPECT_GE(more, 0);
      EXPECT_LE(more, 1);
    }
  }
}

TEST(Decomposition, takes_the_grid_with_the_smallest_halo) {
  const Decomposition square({.nx = 64, .ny = 64}, 4);
  EXPECT_EQ(square.columns(), 2);
  const Decomposition wide({.nx = 1000, .ny = 10}, 4);
  EXPECT_EQ(wide.columns(), 4);
  const Decomposition high({.nx = 10, .ny = 1000}, 4);
  EXPECT_EQ(high.rows(), 4);
  const Decomposition cube({.nx = 32, .ny = 32, .nz = 32}, 8);
  EXPECT_EQ(cube.grid<3>().ranks, (std::array<int, 3>{2, 2, 2}));
  const Decomposition deep({.nx = 10, .ny = 10, .nz = 1000}, 8);
  EXPECT_EQ(deep.layers(), 8);
}

TEST(Decomposition, counts_a_wrap_around_as_a_cut) {
  // Cut along x it has 2 * 50 cells of halo because it wraps around, along y only 60.
  const Decomposition decomposition({.nx = 60, .ny = 50, .periodic_x = true}, 2);
  EXPECT_EQ(decomposition.rows(), 2);
}

TEST(Decomposition, prefers_to_cut_between_rows) {
  const Decomposition plane({.nx = 64, .ny = 64, .periodic_x = true, .periodic_y = true}, 2);
  EXPECT_EQ(plane.rows(), 2);
  const Decomposition volume({.nx = 64, .ny = 64, .nz = 64}, 2);
  EXPECT_EQ(volume.layers(), 2);
}

TEST(Decomposition, tells_its_grid_of_two_dimensions_or_three) {
  const Decomposition decomposition({.nx = 40, .ny = 30, .nz = 1, .periodic_x = true}, 6);
  const auto plane = decomposition.grid<2>();
  EXPECT_EQ(plane.ranks, (std::array<int, 2>{decomposition.rows(), decomposition.columns()}));
  EXPECT_EQ(plane.periodic, (std::array<bool, 2>{false, true}));
  // Ranks count along x first, and blocks lie where the grid says.
  for (int rank = 0; rank < 6; ++rank) {
    const auto east = plane.neighbour(rank, {0, 1});
    ASSERT_TRUE(east.has_value());
    const Box here = decomposition.box(rank);
    EXPECT_EQ(decomposition.box(*east).x, (here.x + here.nx) % 40);
    EXPECT_EQ(decomposition.box(*east).y, here.y);
    EXPECT_EQ(decomposition.grid<3>().neighbour(rank, {0, 0, 1}), east);
    EXPECT_FALSE(decomposition.grid<3>().neighbour(rank, {1, 0, 0}).has_value());
  }
}

TEST(Decomposition, refuses_more_ranks_than_fit) {
  EXPECT_THROW(Decomposition({.nx = 2, .ny = 2}, 5), UsageError);
  EXPECT_THROW(Decomposition({.nx = 3, .ny = 3}, 5), UsageError);
  EXPECT_THROW(Decomposition({.nx = 3, .ny = 3, .nz = 3}, 5), UsageError);
  EXPECT_NO_THROW(Decomposition({.nx = 3, .ny = 3}, 9));
  EXPECT_NO_THROW(Decomposition({.nx = 3, .ny = 3, .nz = 3}, 27));
}

TEST(Decomposition, refuses_more_cells_than_ranks_have_addresses_for) {
  const Mesh large{.nx = Index{1} << 22, .ny = Index{1} << 22};
  EXPECT_THROW(Decomposition(large, 1), UsageError);
  EXPECT_NO_THROW(Decomposition(large, 2));
}

}  // namespace
}  // namespace apps
