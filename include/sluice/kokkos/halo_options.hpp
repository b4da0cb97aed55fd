// SPDX-License-Identifier: Apache-2.0
// HaloOptions, and what a Halo checks before it opens channels.
#pragma once

#include <sluice/context.hpp>
#include <sluice/kokkos/cartesian.hpp>
#include <sluice/kokkos/ends.hpp>
#include <sluice/kokkos/packing.hpp>
#include <sluice/kokkos/reduce.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace sluice::kokkos {

template <std::size_t D>
struct HaloOptions {
  Stencil<D> stencil = full<D>();
  int depth = 2;  ///< how many exchanges may be started and not finished
  /// The name of the channels' scope. Halos of one context that are open at once have different names.
  std::string name = "halo";

  /// Sends in place what one View sends in one direction, if that is alone in its message and has no gaps: it goes from
  /// the View and lands in the View. Then own elements stay unchanged from `start` to `finish`. Peers may write the
  /// ghosts from the construction of the halo to the first `finish`, and from each later `start` to its `finish`. A
  /// neighbour that is ahead waits for this rank's next `start`. For a depth of 1; the same at all ranks; own elements
  /// and ghosts do not overlap; `exchange` only moves the Views that the halo was made with.
  bool in_place = false;

  /// For other elements than cells, and ghosts wider than what is exchanged: which elements of View number `view` go to
  /// the neighbour in direction `offset` (Side::own), or come from it (Side::ghosts). Both ends name as many along each
  /// dimension, or none. A ghost that two directions name has the value of either when both have landed. Unset: cells,
  /// and all their ghosts.
  Ranges<D> ranges = {};
};

namespace detail {

/// Checks HaloOptions::ranges of a View. Own elements of a message lie in the opposite direction of the ghosts that
/// they fill. In place, what lands in the View must not lie where another message is still read.
template <std::size_t D, class View>
void check_ranges(const Context& context, const HaloOptions<D>& options, const View& view, std::size_t number) {
  constexpr int kRank = static_cast<int>(View::rank());
  std::vector<Range> own, ghosts;
  for (const Offset<D>& offset : options.stencil) {
    own.push_back(options.ranges(number, opposite<D>(offset), Side::own));
    ghosts.push_back(options.ranges(number, offset, Side::ghosts));
  }
  const auto check = [&](const Range& range) {
    for (int k = 0; k < kRank; ++k) {
      if (range.begin[k] < 0 || range.begin[k] > range.end[k] || range.end[k] > whole_of(view).end[k])
        refuse(context, Code::bad_argument, "the halo's ranges of View '" + view.label() + "' are not in it");
    }
  };
  std::ranges::for_each(own, check);
  std::ranges::for_each(ghosts, check);
  for (const Range& sent : own) {
    for (const Range& received : ghosts) {
      if (options.in_place && count_of(common_of(sent, received, kRank), kRank) != 0)
        refuse(context, Code::bad_argument,
               "own elements and ghosts of View '" + view.label() +
                   "' overlap in the halo's ranges: it cannot move in place");
    }
  }
}

/// Checks what a Halo is made with. @throws Error{Code::bad_argument}
template <std::size_t D, class... Views>
void check_halo(const Context& context, const Cartesian<D>& grid, Index width, const HaloOptions<D>& options,
                const Views&... views) {
  const auto check = [&](bool right, const std::string& why) {
    if (!right) refuse(context, Code::bad_argument, why);
  };
  check(std::ranges::min(grid.ranks) >= 1, "a halo's grid has a block or more along each dimension");
  check(grid.size() == context.size(), "the halo's grid has " + std::to_string(grid.size()) + " blocks, the context " +
                                           std::to_string(context.size()) + " ranks");
  check(width >= 1, "a halo has a width of 1 or more");
  check(options.depth >= 1, "a halo has a depth of 1 or more");
  check(!options.in_place || options.depth == 1,
        "a halo that moves in place has a depth of 1: each View is there once");
  for (const Offset<D>& offset : options.stencil) {
    const auto [least, most] = std::ranges::minmax(offset);
    check(least >= -1 && most <= 1 && offset != Offset<D>{},
          "an offset of a stencil is made of -1, 0 and 1, and not all of it is 0");
    check(std::ranges::count(options.stencil, offset) == 1, "an offset is in the stencil twice");
  }
  std::size_t number = 0;
  const auto check_view = [&](const auto& view) {
    if (options.ranges) return check_ranges(context, options, view, number++);
    for (std::size_t k = 0; k < D; ++k)
      check(static_cast<Index>(view.extent(k)) >= 3 * width,
            "View '" + view.label() + "' has " + std::to_string(view.extent(k)) + " elements along dimension " +
                std::to_string(k) + ": less than three times the halo's width of " + std::to_string(width));
  };
  (check_view(views), ...);
}

}  // namespace detail
}  // namespace sluice::kokkos
