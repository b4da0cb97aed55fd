// SPDX-License-Identifier: Apache-2.0
// Grids of blocks, one per rank, and which neighbours a stencil reads.
#pragma once

#include <sluice/types.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

namespace sluice::kokkos {

/// A step from one block to another: -1, 0 or 1 in each dimension.
template <std::size_t D>
using Offset = std::array<int, D>;

/// A grid of D dimensions cut into one block per rank. Ranks count along the last dimension first, as those of
/// MPI_Cart_create do.
template <std::size_t D>
struct Cartesian {
  std::array<int, D> ranks;           ///< along each dimension
  std::array<bool, D> periodic = {};  ///< which dimensions wrap around

  bool operator==(const Cartesian&) const = default;
  /// The number of blocks.
  int size() const {
    int all = 1;
    for (const int count : ranks) all *= count;
    return all;
  }
  /// The place of a rank's block along each dimension, from 0 on.
  std::array<int, D> coordinates_of(Rank rank) const {
    std::array<int, D> at{};
    for (std::size_t k = D; k-- > 0; rank /= ranks[k]) at[k] = rank % ranks[k];
    return at;
  }
  /// The rank of the block at `offset` from that of `rank`, which may be `rank` itself; nothing beyond an edge that
  /// does not wrap around.
  std::optional<Rank> neighbour(Rank rank, const Offset<D>& offset) const {
    const auto at = coordinates_of(rank);
    Rank there = 0;
    for (std::size_t k = 0; k < D; ++k) {
      const int beyond = at[k] + offset[k];
      const bool outside = beyond < 0 || beyond >= ranks[k];
      if (outside && !periodic[k]) return std::nullopt;
      there = there * ranks[k] + (beyond + ranks[k]) % ranks[k];
    }
    return there;
  }
};

/// The offsets of the blocks that a block reads ghosts of.
template <std::size_t D>
using Stencil = std::vector<Offset<D>>;

/// Faces, edges and corners: 8 neighbours in 2-D, 26 in 3-D.
template <std::size_t D>
Stencil<D> full() {
  Stencil<D> all;
  int count = 1;
  for (std::size_t k = 0; k < D; ++k) count *= 3;
  for (int i = 0; i < count; ++i) {
    Offset<D> offset{};
    for (int k = static_cast<int>(D), rest = i; k-- > 0; rest /= 3) offset[k] = rest % 3 - 1;
    if (offset != Offset<D>{}) all.push_back(offset);
  }
  return all;
}

/// The neighbours along the axes alone: 4 in 2-D, 6 in 3-D.
template <std::size_t D>
Stencil<D> faces() {
  Stencil<D> all = full<D>();
  std::erase_if(all, [](const Offset<D>& offset) { return std::ranges::count(offset, 0) + 1 != D; });
  return all;
}

}  // namespace sluice::kokkos
