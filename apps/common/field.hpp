// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"
#include "apps/common/space.hpp"

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

namespace apps {

/// Fills rows in parallel, so that on the host each row's memory is near the thread that will update it.
template <class View>
struct FillRow {
  View copy;
  typename View::value_type value;
  KOKKOS_FUNCTION void operator()(Index row) const {
    const auto y = static_cast<std::size_t>(row) % copy.extent(1);
    const auto z = static_cast<std::size_t>(row) / copy.extent(1);
    for (std::size_t x = 0; x < copy.extent(2); ++x) copy(z, y, x) = value;
  }
};

/// A block of cells of D dimensions, 2 or 3, with one layer of ghosts around it. There are two copies: an update reads
/// one and writes the other.
///
/// Rows are contiguous, and the first cell of each row begins a cache line; the ghost to its left is at the end of the
/// line before.
template <class T, class Space, std::size_t D>
class Field {
 public:
  using View = Kokkos::View<T***, Kokkos::LayoutRight, typename Space::memory_space>;
  /// The cells of a copy and their ghosts: z, y, x; or y, x.
  using Ghosted =
      Kokkos::View<std::conditional_t<D == 3, T***, T**>, Kokkos::LayoutStride, typename Space::memory_space>;

  Field(const Space& space, const Box& block, const T& value) : block_(block) {
    for (View& copy : copies_) {
      copy = View(Kokkos::view_alloc(space, Kokkos::WithoutInitializing, std::string("field")),
                  static_cast<std::size_t>(kHasPlanes ? block.nz + 2 : 1), static_cast<std::size_t>(block.ny + 2),
                  static_cast<std::size_t>(pitch_for(block.nx)));
      const auto rows = static_cast<Index>(copy.extent(0) * copy.extent(1));
      Kokkos::parallel_for("fill", Kokkos::RangePolicy<Space>(space, 0, rows), FillRow<View>{copy, value});
    }
    space.fence("fill");
    for (std::size_t i = 0; i < copies_.size(); ++i) host_copies_[i] = host_copy(copies_[i]);
  }

  /// This block's cells in the mesh.
  const Box& block() const { return block_; }
  Strides strides() const {
    const auto pitch = static_cast<Index>(copies_[0].extent(2));
    return {pitch, pitch * static_cast<Index>(copies_[0].extent(1))};
  }

  /// Cell (0, 0, 0) of a copy; ghosts are at -1 and at nx, ny, nz.
  T* origin(int copy) const { return copies_[copy].data() + first(); }

  /// The View that a halo exchanges.
  Ghosted ghosted(int copy) const {
    const std::pair<Index, Index> x(kLine - 1, kLine + block_.nx + 1);
    const std::pair<Index, Index> y(0, block_.ny + 2);
    if constexpr (kHasPlanes) {
      return Kokkos::subview(copies_[copy], std::pair<Index, Index>(0, block_.nz + 2), y, x);
    } else {
      return Kokkos::subview(copies_[copy], 0, y, x);
    }
  }

  /// Cell (0, 0, 0) of a copy in the host's memory. If kernels run on the host it equals `origin`; otherwise `upload`
  /// and `download` copy.
  T* host_origin(int copy) const { return host_copies_[copy].data() + first(); }
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
  static constexpr bool kHasPlanes = D == 3;
  static constexpr Index kLine = 64 / sizeof(T);  // cells in a cache line

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
  Index first() const { return strides().offset(kLine, 1, kHasPlanes ? 1 : 0); }

  Box block_;
  std::array<View, 2> copies_;
  std::array<typename View::HostMirror, 2> host_copies_;
};

}  // namespace apps
