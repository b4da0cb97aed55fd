// SPDX-License-Identifier: Apache-2.0
// Any View as one kind of thing: a box of elements at strides.
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::kokkos::detail {

using Index = std::int64_t;
inline constexpr int kMostRanks = 8;

/// Elements of `element` bytes at strides of whole elements. Their order is that of memory, the smallest stride first:
/// two Views of one layout and one shape list the same elements in the same order, whether or not they have gaps.
struct Box {
  std::byte* data = nullptr;
  Index element = 0;
  int rank = 0;
  Index extents[kMostRanks] = {};
  Index strides[kMostRanks] = {};

  KOKKOS_FUNCTION Index count() const {
    Index all = 1;
    for (int k = 0; k < rank; ++k) all *= extents[k];
    return all;
  }
  Index bytes() const { return count() * element; }
  bool contiguous() const { return rank == 0 || (rank == 1 && strides[0] == 1); }
  /// Elements that lie behind one another.
  KOKKOS_FUNCTION Index run() const { return rank > 0 && strides[0] == 1 ? extents[0] : 1; }
  KOKKOS_FUNCTION Index rows() const { return run() == 0 ? 0 : count() / run(); }
  /// The dimension along which rows follow one another; `rank` if there is but one.
  KOKKOS_FUNCTION int outer() const { return run() == 1 ? 0 : 1; }

  /// The element number `i`.
  KOKKOS_FUNCTION std::byte* at(Index i) const { return data + offset(i, 0) * element; }
  /// The first element of row number `i`.
  KOKKOS_FUNCTION std::byte* row(Index i) const { return data + offset(i, outer()) * element; }

 private:
  KOKKOS_FUNCTION Index offset(Index i, int first) const {
    Index sum = 0;
    for (int k = first; k < rank; ++k) {
      sum += i % extents[k] * strides[k];
      i /= extents[k];
    }
    return sum;
  }
};

/// With dimensions of one element dropped, the others by stride, and those without a gap between them as one.
inline Box box_of(void* data, Index element, std::span<const Index> extents, std::span<const Index> strides) {
  Box box{static_cast<std::byte*>(data), element};
  std::array<int, kMostRanks> order{};
  int kept = 0;
  for (int k = 0; k < static_cast<int>(extents.size()); ++k) {
    if (extents[k] != 1) order[kept++] = k;
  }
  std::stable_sort(order.begin(), order.begin() + kept, [&](int a, int b) { return strides[a] < strides[b]; });
  for (int i = 0; i < kept; ++i) {
    const Index extent = extents[order[i]];
    const Index stride = strides[order[i]];
    const int last = box.rank - 1;
    if (last >= 0 && stride == box.strides[last] * box.extents[last]) {
      box.extents[last] *= extent;
    } else {
      box.extents[box.rank] = extent;
      box.strides[box.rank++] = stride;
    }
  }
  return box;
}

/// What of a View an index range per dimension names: [begin, end).
template <class View>
Box box_of(const View& view, std::span<const Index> begin, std::span<const Index> end) {
  constexpr int kRank = static_cast<int>(View::rank());
  std::array<Index, kRank == 0 ? 1 : kRank> extents{};
  std::array<Index, kRank == 0 ? 1 : kRank> strides{};
  Index first = 0;
  for (int k = 0; k < kRank; ++k) {
    extents[k] = end[k] - begin[k];
    strides[k] = static_cast<Index>(view.stride(k));
    first += begin[k] * strides[k];
  }
  using Value = std::remove_const_t<typename View::value_type>;
  return box_of(const_cast<Value*>(view.data()) + first, sizeof(Value), {extents.data(), kRank},
                {strides.data(), kRank});
}

template <class View>
Box box_of(const View& view) {
  std::array<Index, kMostRanks> begin{};
  std::array<Index, kMostRanks> end{};
  for (int k = 0; k < static_cast<int>(View::rank()); ++k) end[k] = static_cast<Index>(view.extent(k));
  return box_of(view, {begin.data(), View::rank()}, {end.data(), View::rank()});
}

}  // namespace sluice::kokkos::detail
