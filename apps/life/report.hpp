// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/movie.hpp"
#include "apps/life/options.hpp"
#include "apps/life/solution.hpp"
#include "apps/life/world.hpp"

#include <optional>
#include <span>

namespace life {

/// What a run is about, in a line.
void print_header(const Options& options, const World& world);

/// Whether `report` needs the whole field: to compare it, or to write it.
bool reports_field(const Options& options, const World& world);

/// What is written of the generations on the way, at rank 0.
class Chronicle {
 public:
  Chronicle(const Options& options, const World& world, int ranks) : options_(options), world_(world), ranks_(ranks) {}

  /// Pictures, fields and patterns go to the files asked for, numbered, and frames to the movie.
  void write(Index generation, std::span<const Cell> cells);
  /// Ends the movie.
  void close();

 private:
  const Options& options_;
  const World& world_;
  const int ranks_;
  std::optional<apps::Movie> movie_;
};

/// Rank 0's last duties: says how the run went, compares it with the serial run, and writes the files asked for.
/// @returns the exit code of the program: 1 if the fields differ.
int report(const Options& options, const World& world, Solution& solution);

}  // namespace life
