// SPDX-License-Identifier: Apache-2.0
#include "apps/common/decomposition.hpp"

#include "apps/common/usage_error.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace apps {
namespace {

TEST(Decomposition, every_cell_has_one_owner) {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    const Mesh mesh{37, 29, true, false};
    const Decomposition decomposition(mesh, ranks);
    ASSERT_EQ(decomposition.ranks(), ranks);
    std::vector<int> owners(static_cast<std::size_t>(mesh.nx * mesh.ny));
    for (int rank = 0; rank < ranks; ++rank) {
      const Box box = decomposition.box(rank);
      for (Index y = box.y; y < box.y + box.ny; ++y)
        for (Index x = box.x; x < box.x + box.nx; ++x) ++owners[y * mesh.nx + x];
    }
    for (const int count : owners) ASSERT_EQ(count, 1) << ranks << " ranks";
  }
}

TEST(Decomposition, sides_differ_by_one_cell_at_most) {
  const Decomposition decomposition({100, 70, false, false}, 12);
  for (int rank = 0; rank < 12; ++rank) {
    const Box box = decomposition.box(rank);
    EXPECT_LE(box.nx - 100 / decomposition.columns(), 1);
    EXPECT_LE(box.ny - 70 / decomposition.rows(), 1);
  }
}

TEST(Decomposition, takes_the_grid_with_the_smallest_halo) {
  const Decomposition square({64, 64, false, false}, 4);
  EXPECT_EQ(square.columns(), 2);
  const Decomposition wide({1000, 10, false, false}, 4);
  EXPECT_EQ(wide.columns(), 4);
  const Decomposition high({10, 1000, false, false}, 4);
  EXPECT_EQ(high.rows(), 4);
}

TEST(Decomposition, counts_a_wrap_around_as_a_cut) {
  // Cut along x it has 2 * 50 cells of halo because it wraps around, along y only 60.
  const Decomposition decomposition({60, 50, true, false}, 2);
  EXPECT_EQ(decomposition.rows(), 2);
}

TEST(Decomposition, prefers_to_cut_between_rows) {
  const Decomposition decomposition({64, 64, true, true}, 2);
  EXPECT_EQ(decomposition.rows(), 2);
}

TEST(Decomposition, neighbours_are_mutual) {
  for (const bool periodic : {false, true}) {
    const Decomposition decomposition({30, 30, periodic, !periodic}, 6);
    for (int rank = 0; rank < 6; ++rank)
      for (const Direction d : kDirections) {
        const int peer = decomposition.neighbour(rank, d);
        if (peer == kNobody) continue;
        EXPECT_EQ(decomposition.neighbour(peer, {-d.dx, -d.dy}), rank);
      }
  }
}

TEST(Decomposition, a_side_that_does_not_wrap_has_nobody_behind) {
  const Decomposition decomposition({30, 30, false, true}, 1);
  EXPECT_EQ(decomposition.neighbour(0, {1, 0}), kNobody);
  EXPECT_EQ(decomposition.neighbour(0, {0, 1}), 0);
  EXPECT_EQ(decomposition.neighbour(0, {1, 1}), kNobody);
}

TEST(Decomposition, refuses_more_ranks_than_fit) {
  EXPECT_THROW(Decomposition({2, 2, true, true}, 5), UsageError);
  EXPECT_THROW(Decomposition({3, 3, true, true}, 5), UsageError);
  EXPECT_NO_THROW(Decomposition({3, 3, true, true}, 9));
}

}  // namespace
}  // namespace apps
