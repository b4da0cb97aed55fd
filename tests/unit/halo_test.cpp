// SPDX-License-Identifier: Apache-2.0
// The halo without any communication: messages are copied by hand, and every ghost must then hold the cell it mirrors.
#include "apps/common/halo.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace apps {
namespace {

using Block = std::map<std::pair<Index, Index>, Index>;  // position in the block -> number of the cell in the mesh

Index number(const Mesh& mesh, Index x, Index y) { return y * mesh.nx + x; }

template <class Visit>
void each_cell(const Box& box, Visit visit) {
  for (Index y = box.y; y < box.y + box.ny; ++y)
    for (Index x = box.x; x < box.x + box.nx; ++x) visit(x, y);
}

std::vector<Block> numbered_blocks(const Decomposition& decomposition) {
  std::vector<Block> blocks(static_cast<std::size_t>(decomposition.ranks()));
  for (int rank = 0; rank < decomposition.ranks(); ++rank) {
    const Box box = decomposition.box(rank);
    each_cell({0, 0, box.nx, box.ny}, [&](Index x, Index y) {
      blocks[rank][{x, y}] = number(decomposition.mesh(), box.x + x, box.y + y);
    });
  }
  return blocks;
}

std::vector<Index> packed(const Message& message, const Block& block) {
  std::vector<Index> cells;
  for (const Piece& piece : message.out) {
    EXPECT_EQ(piece.at, static_cast<Index>(cells.size()));
    each_cell(piece.cells, [&](Index x, Index y) { cells.push_back(block.at({x, y})); });
  }
  EXPECT_EQ(message.out_cells, static_cast<Index>(cells.size()));
  return cells;
}

void unpack(const Message& message, const std::vector<Index>& cells, Block& block) {
  ASSERT_EQ(message.in_cells, static_cast<Index>(cells.size()));
  for (const Piece& piece : message.in) {
    Index at = piece.at;
    each_cell(piece.cells, [&](Index x, Index y) { block[{x, y}] = cells[at++]; });
  }
}

std::vector<Block> exchanged(const Decomposition& decomposition, Stencil stencil) {
  std::vector<Block> blocks = numbered_blocks(decomposition);
  std::map<std::pair<int, int>, std::vector<Index>> mail;
  std::vector<Halo> halos;
  for (int rank = 0; rank < decomposition.ranks(); ++rank) {
    halos.push_back(make_halo(decomposition, rank, stencil));
    for (const Message& message : halos[rank].messages) mail[{rank, message.peer}] = packed(message, blocks[rank]);
  }
  for (int rank = 0; rank < decomposition.ranks(); ++rank) {
    for (const LocalCopy& copy : halos[rank].copies)
      each_cell({0, 0, copy.to.nx, copy.to.ny}, [&](Index x, Index y) {
        blocks[rank][{copy.to.x + x, copy.to.y + y}] = blocks[rank].at({copy.from.x + x, copy.from.y + y});
      });
    for (const Message& message : halos[rank].messages) unpack(message, mail.at({message.peer, rank}), blocks[rank]);
  }
  return blocks;
}

// What a ghost of a block must mirror; nothing, if it lies beyond a side that does not wrap around.
std::optional<Index> mirrored(const Mesh& mesh, Index x, Index y) {
  if (!mesh.periodic_x && (x < 0 || x >= mesh.nx)) return {};
  if (!mesh.periodic_y && (y < 0 || y >= mesh.ny)) return {};
  return number(mesh, (x + mesh.nx) % mesh.nx, (y + mesh.ny) % mesh.ny);
}

void check(const Mesh& mesh, int ranks, Stencil stencil) {
  const Decomposition decomposition(mesh, ranks);
  const auto blocks = exchanged(decomposition, stencil);
  for (int rank = 0; rank < ranks; ++rank) {
    const Box box = decomposition.box(rank);
    each_cell({-1, -1, box.nx + 2, box.ny + 2}, [&](Index x, Index y) {
      const bool corner = (x < 0 || x >= box.nx) && (y < 0 || y >= box.ny);
      if (corner && stencil == Stencil::five_point) return;
      const auto expected = mirrored(mesh, box.x + x, box.y + y);
      const auto found = blocks[rank].find({x, y});
      ASSERT_EQ(found != blocks[rank].end(), expected.has_value()) << "rank " << rank << " of " << ranks;
      if (!expected) return;
      ASSERT_EQ(found->second, *expected) << "rank " << rank << " of " << ranks << " at " << x << "," << y;
    });
  }
}

TEST(Halo, every_ghost_holds_the_cell_that_it_mirrors) {
  for (const Stencil stencil : {Stencil::five_point, Stencil::nine_point})
    for (const bool periodic_x : {false, true})
      for (const bool periodic_y : {false, true})
        for (int ranks = 1; ranks <= 12; ++ranks) {
          check({13, 11, periodic_x, periodic_y}, ranks, stencil);
          check({12, 1, periodic_x, periodic_y}, ranks, stencil);
          check({1, 12, periodic_x, periodic_y}, ranks, stencil);
        }
}

TEST(Halo, a_pair_of_ranks_has_one_message_each_way) {
  const Decomposition decomposition({12, 12, true, true}, 6);  // 2 x 3: east and west are the same rank
  for (int rank = 0; rank < 6; ++rank)
    EXPECT_EQ(make_halo(decomposition, rank, Stencil::nine_point).messages.size(), 5U);
}

TEST(Halo, interior_and_boundary_are_the_block) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const Decomposition decomposition({9, 9, true, false}, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const Halo halo = make_halo(decomposition, rank, Stencil::nine_point);
      Block seen;
      const auto see = [&](Index x, Index y) { ++seen[{x, y}]; };
      each_cell(halo.interior, see);
      for (const Box& box : halo.boundary) each_cell(box, see);
      const Box block = decomposition.box(rank);
      each_cell({0, 0, block.nx, block.ny}, [&](Index x, Index y) { EXPECT_EQ((seen[{x, y}]), 1); });
      EXPECT_EQ(static_cast<Index>(seen.size()), block.cells());
    }
  }
}

TEST(Halo, interior_reads_nothing_that_a_message_brings) {
  const Decomposition decomposition({20, 20, true, true}, 6);
  for (int rank = 0; rank < 6; ++rank) {
    const Halo halo = make_halo(decomposition, rank, Stencil::nine_point);
    for (const Message& message : halo.messages)
      for (const Piece& piece : message.in)
        each_cell(piece.cells, [&](Index x, Index y) {
          const Box& inner = halo.interior;
          const bool read = x >= inner.x - 1 && x <= inner.x + inner.nx && y >= inner.y - 1 && y <= inner.y + inner.ny;
          EXPECT_FALSE(read) << "ghost " << x << "," << y;
        });
  }
}

}  // namespace
}  // namespace apps
