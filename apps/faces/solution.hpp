// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/report.hpp"

#include <vector>

namespace faces {

/// Result of a run of the program.
struct Solution {
  apps::Result result;
  std::vector<double> copies;  ///< the whole field at rank 0, if it was requested
};

}  // namespace faces
