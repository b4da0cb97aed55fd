// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/cg/options.hpp"
#include "apps/cg/solution.hpp"

namespace cg {

/// Prints the problem in one line.
void print_header(const Options& options);
/// At most once in a hundred iterations. `residual`: as a part of the first one.
void print_residual(const Options& options, Index iteration, double residual);

/// True if `report` needs the whole field, to compare or to draw it.
bool reports_field(const Options& options);

/// Called by rank 0 at the end: prints the results, compares the field with the serial run, and writes the files that
/// the options name.
/// @returns the exit code of the program: 1 if the fields differ, or if the residual is not what the method says.
int report(const Options& options, Solution& solution);

}  // namespace cg
