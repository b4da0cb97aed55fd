// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/report.hpp"
#include "apps/life/pattern.hpp"

#include <cstdint>
#include <vector>

namespace life {

/// Result of a run of the program.
struct Solution {
  apps::Result result;
  std::uint64_t population = 0;  ///< live cells of all ranks
  std::vector<Cell> cells;       ///< the whole field at rank 0, if it was requested
};

}  // namespace life
