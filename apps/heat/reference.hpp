// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/heat/problem.hpp"

#include <vector>

namespace heat {

/// The field after so many steps, on one core, cell by cell.
std::vector<double> solve_serially(const Problem& problem, Index steps);

}  // namespace heat
