// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"

namespace cg {

using apps::Index;

/// Eight partial sums, because with one sum each addition would wait for the previous one.
inline double dot(const double* a, const double* b, Index n) {
  constexpr Index kLanes = 8;
  double sums[kLanes] = {};
  Index x = 0;
  for (; x + kLanes <= n; x += kLanes)
    for (Index lane = 0; lane < kLanes; ++lane) sums[lane] += a[x + lane] * b[x + lane];
  for (; x < n; ++x) sums[0] += a[x] * b[x];
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

/// Row by row the vectors of the method, as its paper names them; `x` is the solution.
struct Row {
  double* x;
  double* r;
  double* p;
  double* s;
  double* z;
};

/// Goes on by an iteration in a row of n cells. `q` is A w, and becomes the next w.
inline void advance(const Row& row, const double* __restrict w, double* __restrict q, double alpha, double beta,
                    Index n) {
  double* __restrict const x = row.x;
  double* __restrict const r = row.r;
  double* __restrict const p = row.p;
  double* __restrict const s = row.s;
  double* __restrict const z = row.z;
  for (Index i = 0; i < n; ++i) {
    z[i] = q[i] + beta * z[i];
    s[i] = w[i] + beta * s[i];
    p[i] = r[i] + beta * p[i];
    x[i] += alpha * p[i];
    r[i] -= alpha * s[i];
    q[i] = w[i] - alpha * z[i];
  }
}

}  // namespace cg
