// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/report.hpp"
#include "apps/heat/problem.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace heat {

/// The largest rounding error of a value of 1 after so many steps: some units in the last place in each.
inline double rounding(Index steps) {
  return 8 * std::numeric_limits<double>::epsilon() * static_cast<double>(steps + 1);
}

/// All the heat in the box, before and after.
struct Balance {
  double before = 0;
  double after = 0;

  /// The change as a fraction of the heat before.
  double change() const { return after == before ? 0 : std::abs(after - before) / before; }
  bool kept(Index steps) const { return change() <= rounding(steps); }
};

/// The largest error of a cell against the exact solution, and that of the run in cells twice as wide.
struct Accuracy {
  double error = 0;
  std::optional<double> coarse_error;

  /// The power of the cells' width to which the error is proportional: 2 for this method. Nothing if rounding may be a
  /// large part of either error after so many steps.
  std::optional<double> order(Index steps) const {
    const double least = 10 * rounding(steps);
    if (coarse_error && error > least && *coarse_error > least) return std::log2(*coarse_error / error);
    return std::nullopt;
  }
};

/// Result of a run of the program.
struct Solution {
  apps::Result result;
  std::optional<Balance> balance;    ///< unset if nothing was communicated
  std::optional<Accuracy> accuracy;  ///< set if the run started as a sine and is to be verified
  std::vector<double> cells;         ///< the whole field at rank 0, if it was requested
};

}  // namespace heat
