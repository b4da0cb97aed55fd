// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/life/options.hpp"
#include "apps/life/solution.hpp"
#include "apps/life/world.hpp"

#include <span>
#include <string>

namespace life {

/// What a run is about, in a line.
void print_header(const Options& options, const World& world);

/// Whether `report` needs the whole field: to compare it, or to write it.
bool reports_field(const Options& options);

/// Writes the picture and the pattern of a generation on the way: to the files asked for, numbered.
void write_generation(const Options& options, const World& world, Index generation, std::span<const Cell> cells);

/// As "gun_000120.png" for "gun.png".
std::string numbered(const std::string& file, Index generation);

/// Rank 0's last duties: says how the run went, compares it with the serial run, and writes the files asked for.
/// @returns the exit code of the program: 1 if the fields differ.
int report(const Options& options, const World& world, Solution& solution);

}  // namespace life
