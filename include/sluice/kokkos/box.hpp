// SPDX-License-Identifier: Apache-2.0
// Any View as one kind of thing: a box of elements at strides.
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace sluice::kokkos {

namespace detail {
using Index = std::int64_t;
inline constexpr int kMostRanks = 8;
}  // namespace detail

/// An index range per dimension of a View: [begin, end).
struct Range {
  std::int64_t begin[detail::kMostRanks] = {};
  std::int64_t end[detail::kMostRanks] = {};
};

}  // namespace sluice::kokkos

namespace sluice::kokkos::detail {

/// Elements of `element` bytes at strides of whole elements. Their order is that of memory, the smallest stride first:
/// two Views of one layout and one shape list the same elements in the same order, whether or not they have gaps. Ends
/// compare `contents_of` to find out whether that is so.
struct Box {
  std::byte* data = nullptr;
  Index element = 0;
  Index word = 1;  ///< how many bytes of an element may be read at once, by their type's alignment
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

/// Elements at strides, before any dimension is dropped.
struct Lattice {
  int rank = 0;
  std::array<Index, kMostRanks> extents{};
  std::array<Index, kMostRanks> strides{};

  bool empty() const { return std::find(extents.begin(), extents.begin() + rank, 0) != extents.begin() + rank; }
  /// The dimensions of more than one element, or none, the smallest stride first. Returns how many they are.
  int in_order(std::array<int, kMostRanks>& order) const {
    int kept = 0;
    for (int k = 0; k < rank; ++k) {
      if (extents[k] != 1) order[kept++] = k;
    }
    std::stable_sort(order.begin(), order.begin() + kept, [this](int a, int b) { return strides[a] < strides[b]; });
    return kept;
  }
};

/// With dimensions of one element dropped, the others by stride, and those without a gap between them as one.
inline Box box_of(void* data, Index element, Index alignment, const Lattice& lattice) {
  Box box{static_cast<std::byte*>(data), element, alignment};
  std::array<int, kMostRanks> order{};
  const int kept = lattice.in_order(order);
  for (int i = 0; i < kept; ++i) {
    const Index extent = lattice.extents[order[i]];
    const Index stride = lattice.strides[order[i]];
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

template <class View>
Lattice lattice_of(const View& view, const Range& range) {
  Lattice lattice{.rank = static_cast<int>(View::rank())};
  for (int k = 0; k < lattice.rank; ++k) {
    lattice.extents[k] = range.end[k] - range.begin[k];
    lattice.strides[k] = static_cast<Index>(view.stride(k));
  }
  return lattice;
}

/// What of a View a range names.
template <class View>
Box box_of(const View& view, const Range& range) {
  const Lattice lattice = lattice_of(view, range);
  Index first = 0;
  for (int k = 0; k < lattice.rank; ++k) first += range.begin[k] * lattice.strides[k];
  using Value = std::remove_const_t<typename View::value_type>;
  return box_of(const_cast<Value*>(view.data()) + first, sizeof(Value), alignof(Value), lattice);
}

/// A type's kind and bytes, as numpy writes them; V: any other than bool, integer or floating point, of which no more
/// is said.
template <class Value>
std::string type_text() {
  const char kind = std::is_same_v<Value, bool>       ? 'b'
                    : std::is_floating_point_v<Value> ? 'f'
                    : std::is_signed_v<Value>         ? 'i'
                    : std::is_unsigned_v<Value>       ? 'u'
                                                      : 'V';
  return kind + std::to_string(sizeof(Value));
}

/// Describes a range for ChannelOptions::contents: the type, and the extents in the order of memory. Two layouts may
/// have the same extents in that order, so each extent has the number of its dimension: "f8[dim1:4,dim0:3]". Dimensions
/// of one element are not counted, so that 5, 5x1 and 1x5 are the same: "f8[5]".
template <class View>
std::string contents_of(const View& view, const Range& range) {
  const Lattice lattice = lattice_of(view, range);
  std::array<int, kMostRanks> order{};
  const int kept = lattice.in_order(order);
  if (lattice.empty()) std::sort(order.begin(), order.begin() + kept);  // they have no order in memory
  const auto number = [&](int dimension) {
    return std::count_if(order.begin(), order.begin() + kept, [&](int other) { return other < dimension; });
  };
  std::string text = type_text<std::remove_const_t<typename View::value_type>>();
  for (int i = 0; i < kept; ++i) {
    text += i == 0 ? '[' : ',';
    if (kept > 1) text += "dim" + std::to_string(number(order[i])) + ':';
    text += std::to_string(lattice.extents[order[i]]);
  }
  return kept == 0 ? text : text + ']';
}

/// All of a View.
template <class View>
Range whole_of(const View& view) {
  Range range;
  for (std::size_t k = 0; k < View::rank(); ++k) range.end[k] = static_cast<Index>(view.extent(k));
  return range;
}

}  // namespace sluice::kokkos::detail
