// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/types.hpp>

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
  int size() const {
    int all = 1;
    for (const int count : ranks) all *= count;
    return all;
  }
  std::array<int, D> coordinates_of(Rank rank) const {
    std::array<int, D> at{};
    for (std::size_t k = D; k-- > 0; rank /= ranks[k]) at[k] = rank % ranks[k];
    return at;
  }
  /// Who owns the block there, maybe the rank itself; nothing beyond an edge that does not wrap around.
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

/// The offsets whose ghosts a stencil reads.
template <std::size_t D>
using Stencil = std::vector<Offset<D>>;

namespace detail {

template <std::size_t D, class Wanted>
Stencil<D> offsets(Wanted wanted) {
  Stencil<D> all;
  int count = 1;
  for (std::size_t k = 0; k < D; ++k) count *= 3;
  for (int i = 0; i < count; ++i) {
    Offset<D> offset{};
    int steps = 0;
    for (std::size_t k = D, rest = static_cast<std::size_t>(i); k-- > 0; rest /= 3) {
      offset[k] = static_cast<int>(rest % 3) - 1;
      steps += offset[k] != 0;
    }
    if (wanted(steps)) all.push_back(offset);
  }
  return all;
}

}  // namespace detail

/// Along the axes alone: 4 neighbours in 2-D, 6 in 3-D.
template <std::size_t D>
Stencil<D> faces() {
  return detail::offsets<D>([](int steps) { return steps == 1; });
}

/// Faces, edges and corners: 8 neighbours in 2-D, 26 in 3-D.
template <std::size_t D>
Stencil<D> full() {
  return detail::offsets<D>([](int steps) { return steps > 0; });
}

}  // namespace sluice::kokkos
