// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/jacobi/options.hpp"
#include "apps/jacobi/solution.hpp"

namespace jacobi {

/// What a run says on its way, unless it is to print one line only.
void print_header(const Options& options);
void print_norm(const Options& options, apps::Index iteration, double norm);

/// Whether `report` needs the whole field: to compare it, or to draw it.
bool reports_field(const Options& options);

/// Rank 0's last duties: says how the run went, compares it with the serial run, and writes the files asked for.
/// @returns the exit code of the program: 1 if the fields differ.
int report(const Options& options, Solution& solution);

}  // namespace jacobi
