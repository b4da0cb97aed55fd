// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/jacobi/problem.hpp"

#include <vector>

namespace jacobi {

/// The unknowns after so many iterations, row by row, computed on one thread by plain loops without blocks, halos and
/// Kokkos: the reference for every parallel run.
std::vector<double> solve_serially(const Problem& problem, apps::Index iterations);

}  // namespace jacobi
