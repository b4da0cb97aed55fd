// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/movie.hpp"
#include "apps/life/options.hpp"
#include "apps/life/solution.hpp"
#include "apps/life/world.hpp"

#include <optional>
#include <span>

namespace life {

/// Prints the problem in one line.
void print_header(const Options& options, const World& world);

/// True if `report` needs the whole field, to compare or to write it.
bool reports_field(const Options& options, const World& world);

/// Writes the files of generations during the run, at rank 0.
class StepFiles {
 public:
  StepFiles(const Options& options, const World& world, int ranks) : options_(options), world_(world), ranks_(ranks) {}

  /// Writes pictures, fields and patterns to the files that the options name, with the generation in their names, and a
  /// frame to the movie.
  void write(Index generation, std::span<const Cell> cells);
  /// Ends the movie.
  void close();

 private:
  const Options& options_;
  const World& world_;
  const int ranks_;
  std::optional<apps::Movie> movie_;
};

/// Called by rank 0 at the end: prints the results, compares the field with the serial run, and writes the files that
/// the options name.
/// @returns the exit code of the program: 1 if the fields differ.
int report(const Options& options, const World& world, Solution& solution);

}  // namespace life
