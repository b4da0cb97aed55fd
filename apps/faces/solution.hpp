// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/report.hpp"

#include <vector>

namespace faces {

/// What a run of the program ends with.
struct Solution {
  apps::Result result;
  std::vector<double> copies;  ///< the whole field at rank 0, if it was asked for
};

}  // namespace faces
