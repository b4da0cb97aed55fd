// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"

#include <vector>

namespace apps {

/// The cells of a block, in its own coordinates: (0, 0, 0) is its first cell.
struct Parts {
  Box interior;               ///< cells whose update reads no ghost that a message fills
  std::vector<Box> boundary;  ///< the others, in six boxes at most
};

Parts divide(const Decomposition& decomposition, int rank);

}  // namespace apps
