// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/report.hpp"
#include "apps/heat/problem.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace heat {

/// What rounding may make of a value of 1 in so many steps, and no more: some units in the last place in each.
inline double rounding(Index steps) {
  return 8 * std::numeric_limits<double>::epsilon() * static_cast<double>(steps + 1);
}

/// All the heat in the box, before and after.
struct Balance {
  double before = 0;
  double after = 0;

  double change() const { return std::abs(after - before) / before; }
  bool kept(Index steps) const { return change() <= rounding(steps); }
};

/// The largest error of a cell against the exact solution; and that of the run in cells twice as wide.
struct Accuracy {
  double error = 0;
  std::optional<double> coarse_error;

  /// The power of the cells' width that the error goes with: 2 for this method.
  std::optional<double> order() const {
    return coarse_error ? std::optional(std::log2(*coarse_error / error)) : std::nullopt;
  }
};

/// What a run of the program ends with.
struct Solution {
  apps::Result result;
  std::optional<Balance> balance;    ///< unless nothing was communicated
  std::optional<Accuracy> accuracy;  ///< if it started as a sine, and is to be verified
  std::vector<double> cells;         ///< the whole field at rank 0, if it was asked for
};

}  // namespace heat
