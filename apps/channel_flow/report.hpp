// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/channel_flow/options.hpp"
#include "apps/channel_flow/problem.hpp"
#include "apps/common/pencils.hpp"
#include "apps/common/report.hpp"

#include <array>
#include <optional>
#include <vector>

namespace channel_flow {

/// Result of a run of the program.
struct Solution {
  apps::Result result;
  std::optional<double> divergence;                       ///< the largest of a cell; unset without communication
  std::array<std::vector<double>, kComponents> velocity;  ///< at rank 0, if it was requested
};

/// Prints the problem in one line.
void print_header(const Options& options, const apps::Pencils& pencils);

/// True if `report` compares the velocity with that of a serial run.
bool reports_velocity(const Options& options);

/// Called by rank 0 at the end: prints the results, and writes the files that the options name.
/// @returns the exit code of the program: 1 if the velocity is wrong, or has divergence.
int report(const Options& options, Solution& solution);

}  // namespace channel_flow
