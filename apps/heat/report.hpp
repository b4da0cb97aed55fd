// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/movie.hpp"
#include "apps/heat/options.hpp"
#include "apps/heat/solution.hpp"

#include <optional>
#include <span>
#include <string>

namespace heat {

/// What a run is about, in a line.
void print_header(const Options& options);

/// Whether `report` needs the whole field: to compare it, or to write it.
bool reports_field(const Options& options);

/// Whether the result is compared with the exact solution.
bool reports_error(const Options& options);

/// Why a run in cells twice as wide cannot tell the order of the error; empty: it can.
std::string why_no_order(const Options& options, int ranks);

/// What is written of the steps on the way, at rank 0.
class Chronicle {
 public:
  Chronicle(const Options& options, int ranks) : options_(options), ranks_(ranks) {}

  /// Pictures and fields go to the files asked for, numbered, and frames to the movie. Of three dimensions pictures
  /// and frames show the plane at a quarter of z.
  void write(Index step, std::span<const double> cells);
  /// Ends the movie.
  void close();

 private:
  const Options& options_;
  const int ranks_;
  std::optional<apps::Movie> movie_;
};

/// Rank 0's last duties: says how the run went, compares it with the serial run, and writes the files asked for.
/// @returns the exit code of the program: 1 if the fields differ, or if heat was lost or won.
int report(const Options& options, Solution& solution);

}  // namespace heat
