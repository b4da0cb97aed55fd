// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"

#include <cstddef>
#include <vector>

namespace apps {

/// Which ghost cells an update reads.
enum class Stencil { five_point, nine_point };

/// Cells of a block in a message: row by row from position `at` (counted in cells).
struct Piece {
  Box cells;
  Index at = 0;
};

/// What two ranks tell each other in a step. A rank that is a neighbour in several directions gets one message, because
/// a message costs more than the few cells more in it.
struct Message {
  int peer = kNobody;
  std::vector<Piece> out;
  std::vector<Piece> in;
  Index out_cells = 0;
  Index in_cells = 0;
};

/// Ghost cells that mirror cells of the same block, because the mesh wraps around and one block spans it.
struct LocalCopy {
  Box from;
  Box to;
};

/// The ghost cells of a block, and who fills them. Boxes are in the block's own coordinates: (0, 0) is its first cell,
/// ghosts are at -1 and at nx, ny.
struct Halo {
  std::vector<Message> messages;
  std::vector<LocalCopy> copies;
  Box interior;               ///< cells whose update reads nothing that a message brings
  std::vector<Box> boundary;  ///< the other cells, in at most four boxes
};

/// The halo of a rank's block. The messages of two ranks fit each other: both list directions in the sender's order.
Halo make_halo(const Decomposition& decomposition, int rank, Stencil stencil);

}  // namespace apps
