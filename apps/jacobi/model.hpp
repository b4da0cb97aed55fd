// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

#include <cstddef>

namespace jacobi {

using apps::Index;

/// The sum of the squares of the changes of n cells. Eight partial sums, because with one sum each addition would wait
/// for the previous one.
constexpr double changes(const double* in, const double* out, Index n) {
  constexpr Index kLanes = 8;
  double sums[kLanes] = {};
  Index x = 0;
  for (; x + kLanes <= n; x += kLanes)
    for (Index lane = 0; lane < kLanes; ++lane) {
      const double change = out[x + lane] - in[x + lane];
      sums[lane] += change * change;
    }
  for (; x < n; ++x) sums[0] += (out[x] - in[x]) * (out[x] - in[x]);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

/// The mean of the four neighbours in a plane. Neighbours are added in one order everywhere, so that results are the
/// same bits for any division of the mesh.
struct FivePoints {
  using Value = double;
  static constexpr std::size_t kDimensions = 2;
  static constexpr apps::Stencil kStencil = apps::Stencil::faces;

  static constexpr double cell(const double* at, const apps::Strides& to) {
    return 0.25 * (at[1] + at[-1] + at[to.row] + at[-to.row]);
  }
};

/// The mean of the 26 neighbours in space, added column by column along x.
struct TwentySevenPoints {
  using Value = double;
  static constexpr std::size_t kDimensions = 3;
  static constexpr apps::Stencil kStencil = apps::Stencil::full;

  static constexpr double cell(const double* at, const apps::Strides& to) {
    const double west = column(at - 1, to) + at[-1];
    const double east = column(at + 1, to) + at[1];
    return (west + east + column(at, to)) * (1.0 / 26);
  }

 private:
  /// The column without the point itself.
  static constexpr double column(const double* at, const apps::Strides& to) {
    const double above = at[-to.plane - to.row] + at[-to.row] + at[to.plane - to.row];
    return above + at[-to.plane + to.row] + at[to.row] + at[to.plane + to.row] + at[-to.plane] + at[to.plane];
  }
};

/// The model of a Stepper.
template <class Points>
struct Model : Points {
  static constexpr void row(const double* __restrict in, const apps::Strides& to, double* __restrict out, Index n) {
    for (Index x = 0; x < n; ++x) out[x] = Points::cell(in + x, to);
  }
  static constexpr double measure(const double* in, const double* out, Index n) { return changes(in, out, n); }
};

using Plane = Model<FivePoints>;
using Volume = Model<TwentySevenPoints>;

}  // namespace jacobi
