// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/cg/problem.hpp"

#include <vector>

namespace cg {

/// The result of so many iterations of the textbook's conjugate gradients (Hestenes, Stiefel: Methods of Conjugate
/// Gradients for Solving Linear Systems, 1952), which are those of the pipelined ones but for rounding; row by row and
/// plane by plane.
std::vector<double> solve_serially(const Problem& problem, Index iterations);

}  // namespace cg
