// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/life/options.hpp"
#include "apps/life/solution.hpp"
#include "apps/life/world.hpp"

namespace life {

/// Whether `report` needs the whole field: to compare it, or to write it.
bool reports_field(const Options& options);

/// Rank 0's last duties: says how the run went, compares it with the serial run, and writes the files asked for.
/// @returns the exit code of the program: 1 if the fields differ.
int report(const Options& options, const World& world, Solution& solution);

}  // namespace life
