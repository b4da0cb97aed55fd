// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"
#include "apps/common/space.hpp"

#include <Kokkos_Core.hpp>

#include <array>
#include <string>

namespace apps {

/// Fills a row at a time and in parallel, so that on the host its memory is near the thread that will update it.
template <class View>
struct FillRow {
  View copy;
  typename View::value_type value;
  KOKKOS_FUNCTION void operator()(Index y) const {
    for (std::size_t x = 0; x < copy.extent(1); ++x) copy(y, x) = value;
  }
};

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
      Kokkos::parallel_for("fill", Kokkos::RangePolicy<Space>(space, 0, static_cast<Index>(copy.extent(0))),
                           FillRow<View>{copy, value});
    }
    space.fence("fill");
    for (std::size_t i = 0; i < copies_.size(); ++i) host_copies_[i] = host_copy(copies_[i]);
  }

  Index nx() const { return nx_; }
  Index ny() const { return ny_; }
  /// The distance from a cell to the one below it.
  Index pitch() const { return static_cast<Index>(copies_[0].extent(1)); }

  /// Cell (0, 0) of a copy; ghosts are at -1 and at nx, ny.
  T* origin(int copy) const { return copies_[copy].data() + pitch() + kLine; }

  /// The same cell in the host's memory. Where kernels run there, it is the same; else `upload` and `download` copy.
  T* host_origin(int copy) const { return host_copies_[copy].data() + pitch() + kLine; }
  void upload(const Space& space) const {
    if constexpr (kOnGpu<Space>) {
      for (std::size_t i = 0; i < copies_.size(); ++i) Kokkos::deep_copy(space, copies_[i], host_copies_[i]);
      space.fence("upload");
    }
  }
  void download(const Space& space, int copy) const {
    if constexpr (kOnGpu<Space>) {
      Kokkos::deep_copy(space, host_copies_[copy], copies_[copy]);
      space.fence("download");
    }
  }

 private:
  static constexpr Index kLine = 64 / sizeof(T);  // cells of a cache line

  static typename View::HostMirror host_copy(const View& copy) {
    if constexpr (kOnGpu<Space>) {
      auto made = Kokkos::create_mirror(Kokkos::HostSpace(), copy);
      Kokkos::deep_copy(made, copy);
      return made;
    } else {
      return copy;
    }
  }

  static Index pitch_for(Index nx) { return kLine + (nx + 1 + kLine - 1) / kLine * kLine; }

  Index nx_;
  Index ny_;
  std::array<View, 2> copies_;
  std::array<typename View::HostMirror, 2> host_copies_;
};

}  // namespace apps
