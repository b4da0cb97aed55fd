// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"

namespace jacobi {

/// The mean of the four neighbours, added in one order everywhere: results are the same bits however the mesh is
/// divided.
struct Model {
  using Value = double;

  static constexpr double cell(const double* at, apps::Index pitch) {
    return 0.25 * (at[1] + at[-1] + at[pitch] + at[-pitch]);
  }

  static constexpr void row(const double* __restrict in, apps::Index pitch, double* __restrict out, apps::Index n) {
    for (apps::Index x = 0; x < n; ++x) out[x] = cell(in + x, pitch);
  }

  /// The sum of the squares of the changes. Eight partial sums, because one sum would make each addition wait for the
  /// last.
  static constexpr double measure(const double* in, const double* out, apps::Index n) {
    constexpr apps::Index kLanes = 8;
    double sums[kLanes] = {};
    apps::Index x = 0;
    for (; x + kLanes <= n; x += kLanes)
      for (apps::Index lane = 0; lane < kLanes; ++lane) {
        const double change = out[x + lane] - in[x + lane];
        sums[lane] += change * change;
      }
    for (; x < n; ++x) sums[0] += (out[x] - in[x]) * (out[x] - in[x]);
    double sum = 0;
    for (const double part : sums) sum += part;
    return sum;
  }
};

}  // namespace jacobi
