// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/mesh.hpp"
#include "apps/common/space.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace apps {

/// Quotient and remainder. GPUs divide 32 bits several times faster than 64.
struct Quotient {
  Index whole;
  Index remainder;
};
KOKKOS_INLINE_FUNCTION Quotient divide(Index number, Index by) {
  const bool small = (number | by) >> 32 == 0;
  const Index whole = small ? static_cast<std::uint32_t>(number) / static_cast<std::uint32_t>(by) : number / by;
  return {whole, number - whole * by};
}

/// Boxes, cut into chunks for one call of a kernel each: a core of the host takes rows, a thread of a GPU a cell.
/// Kernels copy this object.
template <class Space>
class Chunks {
 public:
  static constexpr bool kCells = kOnGpu<Space>;
  static constexpr std::size_t kMostBoxes = 6;

  Chunks() = default;
  /// No box may be empty.
  explicit Chunks(const std::vector<Box>& boxes) {
    for (const Box& box : boxes) {
      const Index rows = kCells ? 1 : std::clamp(kRowCells / box.nx, Index{1}, box.ny);
      const Index per_plane = kCells ? box.nx * box.ny : (box.ny + rows - 1) / rows;
      cuts_[boxes_++] = {box, count_, rows, per_plane};
      count_ += per_plane * box.nz;
    }
  }

  KOKKOS_FUNCTION Index count() const { return count_; }

  KOKKOS_FUNCTION Box operator()(Index number) const {
    std::size_t i = 0;
    while (i + 1 < boxes_ && cuts_[i + 1].first <= number) ++i;
    const Cut& cut = cuts_[i];
    const Box& box = cut.box;
    const auto [plane, in_plane] = divide(number - cut.first, cut.per_plane);
    if constexpr (kCells) {
      const auto [row, cell] = divide(in_plane, box.nx);
      return {box.x + cell, box.y + row, box.z + plane, 1, 1, 1};
    } else {
      const Index row = in_plane * cut.rows;
      const Index left = box.ny - row;
      return {box.x, box.y + row, box.z + plane, box.nx, cut.rows < left ? cut.rows : left, 1};
    }
  }

 private:
  static constexpr Index kRowCells = 1024;  // enough work to make up for a dispatch

  struct Cut {
    Box box;
    Index first = 0;  // number of chunks in the boxes before it
    Index rows = 1;   // in each chunk
    Index per_plane = 1;
  };

  Cut cuts_[kMostBoxes] = {};
  std::size_t boxes_ = 0;
  Index count_ = 0;
};

}  // namespace apps
