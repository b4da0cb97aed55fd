// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/faces/options.hpp"
#include "apps/faces/problem.hpp"
#include "apps/faces/solution.hpp"

namespace faces {

/// What a run is about, in a line.
void print_header(const Options& options, const Problem& problem);

/// Whether `report` needs the whole field: to compare it, or to write it.
bool reports_field(const Options& options, int ranks);

/// Rank 0's last duties: says how the run went, compares it with the serial run, and writes the files asked for.
/// @returns the exit code of the program: 1 if the fields differ.
int report(const Options& options, const Problem& problem, Solution& solution);

}  // namespace faces
