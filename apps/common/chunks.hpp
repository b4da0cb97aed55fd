// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"
#include "apps/common/space.hpp"

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace apps {

/// A list where kernels of `Space` can read it.
template <class T, class Space>
class SpaceList {
 public:
  explicit SpaceList(const std::vector<T>& items)
      : items_(Kokkos::view_alloc(Kokkos::WithoutInitializing, std::string("list")), items.size()) {
    Kokkos::deep_copy(items_, Kokkos::View<const T*, Kokkos::HostSpace>(items.data(), items.size()));
  }
  const T* data() const { return items_.data(); }
  Index size() const { return static_cast<Index>(items_.extent(0)); }

 private:
  Kokkos::View<T*, typename Space::memory_space> items_;
};

/// What one call of a kernel works on: cells of a box of a list. A core of the host takes much at once, a thread of a
/// GPU one cell.
struct Chunk {
  Index box;
  Box cells;
};

/// A cell of a box; they are counted row by row.
KOKKOS_INLINE_FUNCTION Box cell_of(const Box& box, Index number) {
  // GPUs divide 32 bits several times faster than 64.
  const bool small = (number | box.nx) >> 32 == 0;
  const Index row = small ? static_cast<std::uint32_t>(number) / static_cast<std::uint32_t>(box.nx) : number / box.nx;
  return {box.x + number - row * box.nx, box.y + row, 1, 1};
}

/// One box, by rows, or by cells on a GPU. Kernels copy it.
template <class Space>
struct RowChunks {
  static constexpr bool kCells = kOnGpu<Space>;

  Box box;

  Index count() const { return kCells ? box.cells() : box.ny; }
  KOKKOS_FUNCTION Chunk operator()(Index number) const {
    if constexpr (kCells) {
      return {0, cell_of(box, number)};
    } else {
      return {0, {box.x, box.y + number, box.nx, 1}};
    }
  }
};

/// A list of boxes, none of them empty, by boxes, or by cells on a GPU.
template <class Space>
class BoxChunks {
 public:
  struct Entry {
    Box box;
    Index first;  ///< how many chunks the boxes before it are
  };

  explicit BoxChunks(const std::vector<Box>& boxes) : entries_(numbered(boxes)) {
    for (const Box& box : boxes) count_ += chunks_of(box);
  }

  Index count() const { return count_; }

  /// What kernels copy: valid as long as this is.
  struct Reader {
    static constexpr bool kCells = kOnGpu<Space>;

    const Entry* entries;
    Index count;

    KOKKOS_FUNCTION Chunk operator()(Index number) const {
      if constexpr (kCells) {
        Index i = 0;
        while (i + 1 < count && entries[i + 1].first <= number) ++i;
        return {i, cell_of(entries[i].box, number - entries[i].first)};
      } else {
        return {number, entries[number].box};
      }
    }
  };
  Reader reader() const { return {entries_.data(), entries_.size()}; }

 private:
  static Index chunks_of(const Box& box) { return kOnGpu<Space> ? box.cells() : 1; }

  static std::vector<Entry> numbered(const std::vector<Box>& boxes) {
    std::vector<Entry> all;
    Index first = 0;
    for (const Box& box : boxes) {
      all.push_back({box, first});
      first += chunks_of(box);
    }
    return all;
  }

  SpaceList<Entry, Space> entries_;
  Index count_ = 0;
};

}  // namespace apps
