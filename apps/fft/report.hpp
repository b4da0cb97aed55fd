// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/pencils.hpp"
#include "apps/common/report.hpp"
#include "apps/fft/options.hpp"

#include <optional>
#include <vector>

namespace fft {

using apps::Complex;

/// Result of a run of the program.
struct Solution {
  apps::Result result;
  std::vector<Complex> transform;  ///< of the initial cells, at rank 0, if it was requested
  std::optional<double> error;     ///< the largest difference of a cell after all steps; unset: not looked at
};

/// Prints the problem in one line.
void print_header(const Options& options, const apps::Pencils& pencils);

/// True if `report` compares the transform with its definition.
bool reports_transform(const Options& options);
/// True if `report` compares the cells after all steps with the initial ones.
bool reports_error(const Options& options);

/// Called by rank 0 at the end: prints the results, and writes the files that the options name.
/// @returns the exit code of the program: 1 if the transform or the cells are wrong.
int report(const Options& options, Solution& solution);

}  // namespace fft
