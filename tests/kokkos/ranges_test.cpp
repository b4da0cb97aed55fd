// SPDX-License-Identifier: Apache-2.0
// Halos whose ranges the program names: nodes, ghosts wider than what is exchanged, Views that skip directions.
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using namespace sluice::kokkos;
using Exec = Kokkos::DefaultHostExecutionSpace;
using At = std::array<Index, 2>;

constexpr Index kGhosts = 3;
constexpr Index kWidth = 2;  // of what is exchanged
constexpr Index kCells = 5;  // of a block along a dimension

/// Identifies the kind of elements of a View: numbers that both ends of the halo use.
enum RangeField : std::size_t { cells, nodes, cells_along_x };

struct RangeCase {
  std::vector<RangeField> fields;
  Stencil<2> stencil;
  std::array<bool, 2> periodic;
};

/// A field on a block. A node lies at the low end of each cell along each dimension; where the grid ends there is one
/// more.
struct Block {
  const RangeCase& one;
  Cartesian<2> grid;
  Rank rank;
  RangeField field;

  bool last(std::size_t k) const { return grid.coordinates_of(rank)[k] == grid.ranks[k] - 1; }
  Index own(std::size_t k) const { return kCells + (field == nodes && last(k) && !grid.periodic[k] ? 1 : 0); }
  At extents() const { return {own(0) + 2 * kGhosts + 1, own(1) + 2 * kGhosts + 1}; }

  Range range(const Offset<2>& offset, Side side) const {
    Range range;
    if (field == cells_along_x && offset[1] != 0) return range;
    const Index shared = field == nodes ? 1 : 0;  // own ones seen from below: the one on the border, too
    for (std::size_t k = 0; k < 2; ++k) {
      const Index begin = kGhosts;
      const Index end = begin + own(k);
      range.begin[k] = begin;
      range.end[k] = end;
      if (offset[k] < 0 && side == Side::own) range.end[k] = begin + kWidth + shared;
      if (offset[k] > 0 && side == Side::own) range.begin[k] = end - kWidth;
      if (offset[k] < 0 && side == Side::ghosts) range.begin[k] = (range.end[k] = begin) - kWidth;
      if (offset[k] > 0 && side == Side::ghosts) range.end[k] = (range.begin[k] = end) + kWidth + shared;
    }
    return range;
  }
  static bool in(const Range& range, const At& at) {
    for (std::size_t k = 0; k < 2; ++k) {
      if (at[k] < range.begin[k] || at[k] >= range.end[k]) return false;
    }
    return true;
  }
  bool own(const At& at) const { return in(range({}, Side::own), at); }
  bool filled(const At& at) const {
    return std::ranges::any_of(one.stencil, [&](const Offset<2>& offset) {
      return grid.neighbour(rank, offset) && in(range(offset, Side::ghosts), at);
    });
  }
  At global(const At& at) const {
    At all{};
    for (std::size_t k = 0; k < 2; ++k) {
      const Index whole = kCells * grid.ranks[k];
      all[k] = grid.coordinates_of(rank)[k] * kCells + at[k] - kGhosts;
      if (grid.periodic[k]) all[k] = (all[k] + whole) % whole;
    }
    return all;
  }
};

Index value_of(const At& global, Index step) { return global[0] * 131 + global[1] * 7 + step * 1000; }
Index ghost_of(Rank rank, const At& at, Index step) { return (rank + 1) * 10'000 + at[0] * 31 + at[1] + step * 3; }

/// The own element's value and all that ghosts send back to it.
Index summed(const Block& mine, const At& at, Index step) {
  Index sum = value_of(mine.global(at), step);
  for (Rank rank = 0; rank < mine.grid.size(); ++rank) {
    const Block theirs{mine.one, mine.grid, rank, mine.field};
    for_each_index(theirs.extents(), [&](const At& ghost) {
      if (theirs.filled(ghost) && theirs.global(ghost) == mine.global(at)) sum += ghost_of(rank, ghost, step);
    });
  }
  return sum;
}

template <class... Views>
void exchange_both_ways(Context& context, const RangeCase& one, const Cartesian<2>& grid, const Views&... views) {
  const auto block = [&](std::size_t number) { return Block{one, grid, context.rank(), one.fields[number]}; };
  HaloOptions<2> options{.stencil = one.stencil};
  options.ranges = [&](std::size_t number, const Offset<2>& offset, Side side) {
    return block(number).range(offset, side);
  };
  Halo halo(context, Exec(), grid, 1, options, views...);
  const auto each = [&](auto f) {
    std::size_t number = 0;
    const auto all = [&](const auto& view, const Block& in) {
      int wrong = 0;
      for_each_index(in.extents(), [&](const At& at) { wrong += !f(view, in, at); });
      EXPECT_EQ(wrong, 0) << "elements of " << view.label();
    };
    (all(views, block(number++)), ...);
  };
  for (Index step = 1; step <= 3; ++step) {
    each([&](const auto& view, const Block& in, const At& at) {
      element(view, at) = in.own(at) ? value_of(in.global(at), step) : -1;
      return true;
    });
    halo.exchange();
    each([&](const auto& view, const Block& in, const At& at) {
      return element(view, at) == (in.own(at) || in.filled(at) ? value_of(in.global(at), step) : -1);
    });
    each([&](const auto& view, const Block& in, const At& at) {
      if (!in.own(at)) element(view, at) = ghost_of(in.rank, at, step);
      return true;
    });
    halo.scatter(Sum{});
    each([&](const auto& view, const Block& in, const At& at) {
      return element(view, at) == (in.own(at) ? summed(in, at, step) : ghost_of(in.rank, at, step));
    });
  }
}

std::vector<RangeCase> range_cases() {
  std::vector<RangeCase> all;
  for (const auto& periodic : {std::array{false, false}, std::array{true, false}, std::array{true, true}}) {
    for (const auto& stencil : {faces<2>(), full<2>()}) {
      all.push_back({{cells, nodes, cells_along_x}, stencil, periodic});
      all.push_back({{cells_along_x}, stencil, periodic});
    }
  }
  return all;
}

TEST(Ranges, say_what_ghosts_are_of_nodes_and_wider_halos) {
  for (const int ranks : {1, 2, 4}) {
    run_peers({.ranks = ranks, .processes = ranks == 2}, [ranks](Context& context) {
      for (const RangeCase& one : range_cases()) {
        const Cartesian<2> grid{.ranks = {ranks > 1 ? 2 : 1, ranks > 2 ? 2 : 1}, .periodic = one.periodic};
        const auto extents = [&](RangeField field) { return Block{one, grid, context.rank(), field}.extents(); };
        const auto along_x = make_strided<Index>("along x", extents(cells_along_x));
        if (one.fields.size() == 1) {
          exchange_both_ways(context, one, grid, along_x);
          continue;
        }
        const auto a = make_view<Index, Kokkos::LayoutRight>("cells", extents(cells));
        const auto b = make_view<Index, Kokkos::LayoutLeft>("nodes", extents(nodes));
        exchange_both_ways(context, one, grid, a, b, along_x);
      }
    });
  }
}

TEST(Ranges, outside_of_the_view_are_refused) {
  run_peers({.ranks = 1}, [](Context& context) {
    const Kokkos::View<int*, Kokkos::HostSpace> view("field", 8);
    const Cartesian<1> ring{.ranks = {1}, .periodic = {true}};
    HaloOptions<1> options;
    options.ranges = [](std::size_t, const Offset<1>&, Side) { return Range{{6}, {9}}; };
    try {
      const Halo halo(context, Exec(), ring, 1, options, view);
      ADD_FAILURE() << "not refused";
    } catch (const Error& reason) {
      EXPECT_EQ(reason.code(), Code::bad_argument);
      EXPECT_NE(std::string(reason.what()).find("the halo's ranges of View 'field' are not in it"), std::string::npos);
    }
  });
}

/// Each element that parts cover is in one overlap, which names those parts, in their order; and there are as few as a
/// block has faces, edges and corners.
TEST(Ranges, overlap_where_the_same_parts_do) {
  std::vector<kokkos::detail::Part> parts;
  const std::array<Index, 3> extents{9, 10, 11};
  const Kokkos::View<int***, Kokkos::HostSpace> view("field", 9, 10, 11);
  const kokkos::Block<3> block{.grid = {}, .width = 2, .stencil = full<3>()};
  for (const auto& offset : block.stencil)
    parts.push_back({kokkos::detail::range_of(block, view, 0, offset, Side::own)});
  const auto all = kokkos::detail::overlaps_of(parts, 3);
  EXPECT_EQ(all.size(), 26U);
  for_each_index(extents, [&](const auto& at) {
    const auto has = [&](const Range& range) {
      for (std::size_t k = 0; k < 3; ++k) {
        if (at[k] < range.begin[k] || at[k] >= range.end[k]) return false;
      }
      return true;
    };
    std::vector<std::size_t> covering;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      if (has(parts[p].range)) covering.push_back(p);
    }
    std::vector<std::size_t> said;
    for (const auto& overlap : all) {
      if (has(overlap.range)) said.insert(said.end(), overlap.parts.begin(), overlap.parts.end());
    }
    EXPECT_EQ(said, covering);
  });
}

}  // namespace
