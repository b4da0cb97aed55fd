// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/step_files.hpp"
#include "apps/heat/options.hpp"
#include "apps/heat/solution.hpp"

#include <string>

namespace heat {

/// Prints the problem in one line.
void print_header(const Options& options);

/// True if `report` needs the whole field, to compare or to write it.
bool reports_field(const Options& options);

/// True if the result is compared with the exact solution.
bool reports_error(const Options& options);

/// The reason why a run in cells twice as wide cannot give the order of the error; empty if it can.
std::string why_no_order(const Options& options, int ranks);

/// The files that rank 0 writes during the run, as `options` says, which outlives them: pictures and fields with the
/// step in their names, and a movie.
apps::StepFiles<double> step_files(const Options& options, int ranks);

/// Called by rank 0 at the end: prints the results, compares the field with the serial run, and writes the files that
/// the options name.
/// @returns the exit code of the program: 1 if the fields differ, or if heat was lost or gained.
int report(const Options& options, Solution& solution);

}  // namespace heat
