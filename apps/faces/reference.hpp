// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/faces/problem.hpp"

#include <vector>

namespace faces {

/// All copies after so many steps, on one core, copy by copy.
std::vector<double> solve_serially(const Problem& problem, Index steps);

}  // namespace faces
