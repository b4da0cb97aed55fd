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

/// What one call of a kernel works on: cells of a box of a list.
struct Chunk {
  Index box;
  Box cells;
};

/// How much of a list of boxes is a chunk. A core of the host takes much at once; a thread of a GPU takes one cell.
enum class Grain : std::uint8_t { box, row, cell };

template <class Space>
constexpr Grain grain_for(Grain of_the_host) {
  return kOnGpu<Space> ? Grain::cell : of_the_host;
}

/// A box of a list, and how many chunks those before it are.
struct ChunkedBox {
  Box box;
  Index first;
};

/// A list of boxes, none of them empty, cut into chunks.
template <class Space, Grain of_the_host>
class Chunks {
 public:
  static constexpr Grain kGrain = grain_for<Space>(of_the_host);

  explicit Chunks(const std::vector<Box>& boxes) : boxes_(numbered(boxes)) {
    for (const Box& box : boxes) count_ += chunks_of(box);
  }

  Index count() const { return count_; }

  /// What a kernel keeps of this: valid as long as this is.
  struct Reader {
    static constexpr Grain kGrain = Chunks::kGrain;

    const ChunkedBox* boxes;
    Index count;

    KOKKOS_FUNCTION Chunk operator()(Index number) const {
      if constexpr (kGrain == Grain::box) return {number, boxes[number].box};
      Index i = 0;
      while (i + 1 < count && boxes[i + 1].first <= number) ++i;
      const Box& box = boxes[i].box;
      const Index at = number - boxes[i].first;
      if constexpr (kGrain == Grain::row) return {i, {box.x, box.y + at, box.nx, 1}};
      // GPUs divide 32 bits several times faster than 64.
      const bool small = (at | box.nx) >> 32 == 0;
      const Index row = small ? static_cast<std::uint32_t>(at) / static_cast<std::uint32_t>(box.nx) : at / box.nx;
      return {i, {box.x + at - row * box.nx, box.y + row, 1, 1}};
    }
  };
  Reader reader() const { return {boxes_.data(), boxes_.size()}; }

 private:
  static Index chunks_of(const Box& box) {
    if constexpr (kGrain == Grain::box) return 1;
    return kGrain == Grain::row ? box.ny : box.cells();
  }

  static std::vector<ChunkedBox> numbered(const std::vector<Box>& boxes) {
    std::vector<ChunkedBox> all;
    Index first = 0;
    for (const Box& box : boxes) {
      all.push_back({box, first});
      first += chunks_of(box);
    }
    return all;
  }

  SpaceList<ChunkedBox, Space> boxes_;
  Index count_ = 0;
};

}  // namespace apps
