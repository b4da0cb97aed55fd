// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"

#include <Kokkos_Core.hpp>

#include <array>
#include <string>

namespace apps {

/// A block of cells with one layer of ghosts around it, twice: an update reads one copy and writes the other.
///
/// Rows are contiguous, and the first cell of each row begins a cache line; the ghost to its left ends the one before.
template <class T, class Space>
class Field {
 public:
  using View = Kokkos::View<T**, Kokkos::LayoutRight, typename Space::memory_space>;

  Field(const Space& space, Index nx, Index ny, const T& value) : nx_(nx), ny_(ny) {
    for (View& copy : copies_) {
      copy = View(Kokkos::view_alloc(space, Kokkos::WithoutInitializing, std::string("field")), ny + 2, pitch_for(nx));
      fill(space, copy, value);
    }
  }

  Index nx() const { return nx_; }
  Index ny() const { return ny_; }
  /// The distance from a cell to the one below it.
  Index pitch() const { return static_cast<Index>(copies_[0].extent(1)); }

  /// Cell (0, 0) of a copy; ghosts are at -1 and at nx, ny.
  T* origin(int copy) const { return copies_[copy].data() + pitch() + kLine; }

 private:
  static constexpr Index kLine = 64 / sizeof(T);  // cells of a cache line

  static Index pitch_for(Index nx) { return kLine + (nx + 1 + kLine - 1) / kLine * kLine; }

  // By rows and in parallel, so that a row's memory is near the thread that will update it.
  static void fill(const Space& space, const View& copy, const T& value) {
    const Index width = static_cast<Index>(copy.extent(1));
    Kokkos::parallel_for(
        "fill", Kokkos::RangePolicy<Space>(space, 0, static_cast<Index>(copy.extent(0))), KOKKOS_LAMBDA(Index y) {
          for (Index x = 0; x < width; ++x) copy(y, x) = value;
        });
    space.fence("fill");
  }

  Index nx_;
  Index ny_;
  std::array<View, 2> copies_;
};

}  // namespace apps
