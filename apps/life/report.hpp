// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/step_files.hpp"
#include "apps/life/options.hpp"
#include "apps/life/solution.hpp"
#include "apps/life/world.hpp"

namespace life {

/// Prints the problem in one line.
void print_header(const Options& options, const World& world);

/// True if `report` needs the whole field, to compare or to write it.
bool reports_field(const Options& options, const World& world);

/// The files that rank 0 writes during the run, as `options` says: pictures, fields and patterns with the generation in
/// their names, and a movie. `options` and `world` outlive them.
apps::StepFiles<Cell> step_files(const Options& options, const World& world, int ranks);

/// Called by rank 0 at the end: prints the results, compares the field with the serial run, and writes the files that
/// the options name.
/// @returns the exit code of the program: 1 if the fields differ.
int report(const Options& options, const World& world, Solution& solution);

}  // namespace life
