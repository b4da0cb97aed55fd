// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/report.hpp"

#include <optional>
#include <vector>

namespace cg {

/// Result of a run of the program.
struct Solution {
  apps::Result result;
  double residual = 0;                  ///< of the last iteration but one, as the method has it: a part of the first
  std::optional<double> true_residual;  ///< |b - A x| / |b| of the result; unset without communication
  std::vector<double> cells;            ///< the whole field at rank 0, if it was requested
};

}  // namespace cg
