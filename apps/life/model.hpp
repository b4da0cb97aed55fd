// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"
#include "apps/life/pattern.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace life {

/// One generation of any rule that counts neighbours, 16 or more cells at a time.
///
/// A row is updated by the sum of the nine cells around and including each cell. A sum of k is a dead cell with k live
/// neighbours or a live one with k - 1; a Case has the result for each of the two.
class Model {
 public:
  using Value = Cell;
  static constexpr std::size_t kDimensions = 2;
  static constexpr apps::Stencil kStencil = apps::Stencil::full;

  explicit Model(const Rule& rule) : rule_(rule) {
    for (unsigned sum = 0; sum <= 9; ++sum) {
      const Cell if_dead = sum <= 8 && rule.next(false, sum) ? 1 : 0;
      const Cell if_alive = sum >= 1 && rule.next(true, sum - 1) ? 1 : 0;
      if (if_dead != 0 || if_alive != 0)
        cases_[count_++] = {static_cast<Cell>(sum), if_dead, static_cast<Cell>(if_dead ^ if_alive)};
    }
  }

  constexpr Cell cell(const Cell* at, const apps::Strides& to) const {
    const Cell* const above = at - to.row;
    const Cell* const below = at + to.row;
    const unsigned neighbours =
        above[-1] + above[0] + above[1] + at[-1] + at[1] + below[-1] + below[0] + static_cast<unsigned>(below[1]);
    return rule_.next(*at != 0, neighbours) ? 1 : 0;
  }

  constexpr void row(const Cell* in, const apps::Strides& to, Cell* out, Index n) const {
    for (Index x = 0; x < n; x += kStrip) strip(in + x, to.row, out + x, std::min(kStrip, n - x));
  }

 private:
  struct Case {
    Cell sum = kNever;
    Cell if_dead = 0;
    Cell changed_if_alive = 0;
  };

  static constexpr Cell kNever = 255;    // no sum of nine cells
  static constexpr Index kStrip = 1024;  // cells whose sums stay in the first-level cache

  // NOLINTNEXTLINE(readability-non-const-parameter): apply writes there
  constexpr void strip(const Cell* __restrict in, Index pitch, Cell* __restrict out, Index n) const {
    alignas(64) Cell columns[kStrip + 2];
    alignas(64) Cell sums[kStrip];
    for (Index x = 0; x < n + 2; ++x) columns[x] = static_cast<Cell>(in[x - 1 - pitch] + in[x - 1] + in[x - 1 + pitch]);
    for (Index x = 0; x < n; ++x) sums[x] = static_cast<Cell>(columns[x] + columns[x + 1] + columns[x + 2]);
    apply<false>(in, sums, out, n, cases_[0], cases_[1]);
    for (std::size_t i = 2; i < count_; i += 2) apply<true>(in, sums, out, n, cases_[i], cases_[i + 1]);
  }

  // Two cases in one pass, because Conway's rule has two.
  template <bool kAdd>
  static constexpr void apply(const Cell* __restrict in, const Cell* __restrict sums, Cell* __restrict out, Index n,
                              const Case& one, const Case& two) {
    const auto [sum1, dead1, change1] = one;
    const auto [sum2, dead2, change2] = two;
    for (Index x = 0; x < n; ++x) {
      const Cell next1 = static_cast<Cell>((sums[x] == sum1) & (dead1 ^ (change1 & in[x])));
      const Cell next2 = static_cast<Cell>((sums[x] == sum2) & (dead2 ^ (change2 & in[x])));
      out[x] = static_cast<Cell>((kAdd ? out[x] : 0) | next1 | next2);
    }
  }

  Rule rule_;
  std::array<Case, 10> cases_{};
  std::size_t count_ = 0;
};

}  // namespace life
