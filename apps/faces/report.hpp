// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/faces/options.hpp"
#include "apps/faces/problem.hpp"
#include "apps/faces/solution.hpp"

#include <span>
#include <utility>

namespace faces {

/// Prints the problem in one line.
void print_header(const Options& options, const Problem& problem);

/// True if `report` needs the whole field, to compare or to write it.
bool reports_field(const Options& options, int ranks);

/// The values at the two ends of a picture's colours: the least and the greatest value in it. Steps smooth the field,
/// so that with fixed ends a picture is white after 200 steps.
std::pair<double, double> picture_ends(std::span<const double> copies, const Problem& problem);

/// Called by rank 0 at the end: prints the results, compares the field with the serial run, and writes the files that
/// the options name.
/// @returns the exit code of the program: 1 if the fields differ.
int report(const Options& options, const Problem& problem, Solution& solution);

}  // namespace faces
