// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/jacobi/options.hpp"
#include "apps/jacobi/solution.hpp"

namespace jacobi {

/// Prints the problem, unless the run prints one line only.
void print_header(const Options& options);
void print_norm(const Options& options, apps::Index iteration, double norm);

/// True if `report` needs the whole field, to compare or to draw it.
bool reports_field(const Options& options);

/// Called by rank 0 at the end: prints the results, compares the field with the serial run, and writes the files that
/// the options name.
/// @returns the exit code of the program: 1 if the fields differ.
int report(const Options& options, Solution& solution);

}  // namespace jacobi
