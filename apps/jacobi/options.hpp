// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"
#include "apps/common/options.hpp"
#include "apps/jacobi/problem.hpp"

namespace jacobi {

struct Options {
  apps::CommonOptions common;
  apps::Index nx = 1024;  ///< points of the mesh with its boundary
  apps::Index ny = 1024;
  apps::Index nz = 1;  ///< 1: two dimensions
  apps::Index iterations = 1000;
  apps::Index norm_every = 1;  ///< 0: never
  double tolerance = 1e-8;     ///< a run ends when its norm is not above this
  bool periodic_x = false;
  bool periodic_y = true;
  bool csv_line = false;  ///< print one line, as NVIDIA's examples do

  Problem problem() const { return {nx, ny, nz, periodic_x, periodic_y}; }
  /// Number of updates of a cell in so many steps.
  double updates(apps::Index steps) const {
    return static_cast<double>(problem().mesh().cells()) * static_cast<double>(steps);
  }
};

/// Parses the options of NVIDIA's multi-GPU examples and those of this program.
apps::Parsed parse(int argc, const char* const* argv, Options& options);

}  // namespace jacobi
