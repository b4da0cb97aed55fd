// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/cg/problem.hpp"
#include "apps/common/options.hpp"

namespace cg {

struct Options {
  apps::CommonOptions common;
  Index nx = 512;
  Index ny = 512;
  Index nz = 1;  ///< 1: two dimensions
  Index iterations = 1000;
  Index check_every = 10;   ///< 0: never
  double tolerance = 1e-8;  ///< a run ends when its residual, as a part of the first one, is not above this

  Problem problem() const { return {nx, ny, nz}; }
  /// Number of updates of a cell in so many iterations.
  double updates(Index steps) const {
    return static_cast<double>(problem().mesh().cells()) * static_cast<double>(steps);
  }
};

/// Parses the options of this program, which have the names of jacobi's.
apps::Parsed parse(int argc, const char* const* argv, Options& options);

}  // namespace cg
