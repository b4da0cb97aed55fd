// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/jacobi/problem.hpp"

#include <vector>

namespace jacobi {

/// The unknowns after so many iterations, row by row, computed on one thread by plain loops that know nothing of
/// blocks, halos and Kokkos: what every parallel run is compared with.
std::vector<double> solve_serially(const Problem& problem, apps::Index iterations);

}  // namespace jacobi
