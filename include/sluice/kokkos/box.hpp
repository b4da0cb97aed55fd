// SPDX-License-Identifier: Apache-2.0
// Box: the elements of any View, at strides.
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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
/// compare `contents_of` to check that.
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
  /// True if elements at this stride follow the last dimension without a gap.
  bool joins(Index stride) const { return rank > 0 && stride == strides[rank - 1] * extents[rank - 1]; }
  /// Adds a dimension, or makes the last one longer if they are `joined`.
  void add(Index extent, Index stride, bool joined) {
    if (joined) {
      extents[rank - 1] *= extent;
    } else {
      extents[rank] = extent;
      strides[rank++] = stride;
    }
  }
  bool contiguous() const { return rank == 0 || (rank == 1 && strides[0] == 1); }
  /// The number of elements of a row, which lie one behind the other.
  KOKKOS_FUNCTION Index run() const { return rank > 0 && strides[0] == 1 ? extents[0] : 1; }
  KOKKOS_FUNCTION Index rows() const { return run() == 0 ? 0 : count() / run(); }
  /// The dimension along which rows follow one another; `rank` if there is only one row.
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

/// Returns the number of elements of a range.
inline Index count_of(const Range& range, int rank) {
  Index count = 1;
  for (int k = 0; k < rank; ++k) count *= std::max(Index{0}, range.end[k] - range.begin[k]);
  return count;
}

/// A dimension of a View, and its extent in a range.
struct Dimension {
  int number = 0;
  Index extent = 0;
  Index stride = 0;
};

/// The dimensions of a View, the smallest stride first.
template <class View>
std::array<Dimension, View::rank()> by_stride(const View& view, const Range& range) {
  std::array<Dimension, View::rank()> all;
  for (int k = 0; k < static_cast<int>(View::rank()); ++k)
    all[k] = {k, range.end[k] - range.begin[k], static_cast<Index>(view.stride(k))};
  std::ranges::sort(all, {}, [](const Dimension& one) { return std::pair(one.stride, one.number); });
  return all;
}

/// The box of a range. Drops dimensions of one element, and merges dimensions that have no gap between them.
template <class View>
Box box_of(const View& view, const Range& range) {
  using Value = std::remove_const_t<typename View::value_type>;
  auto* const data = const_cast<Value*>(view.data());
  Box box{nullptr, sizeof(Value), alignof(Value)};
  Index first = 0;
  for (const auto& [number, extent, stride] : by_stride(view, range)) {
    first += range.begin[number] * stride;
    if (extent != 1) box.add(extent, stride, box.joins(stride));
  }
  box.data = reinterpret_cast<std::byte*>(data + first);
  return box;
}

/// A type's kind and bytes, as numpy writes them; V is any type but bool, integers and floating point.
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
  const auto all = by_stride(view, range);
  std::vector<Dimension> kept(all.begin(), all.end());
  std::erase_if(kept, [](const Dimension& one) { return one.extent == 1; });
  // Without elements there is no order in memory.
  if (count_of(range, View::rank()) == 0) std::ranges::sort(kept, {}, &Dimension::number);
  const auto number_of = [&](const Dimension& one) {
    return std::ranges::count_if(kept, [&](const Dimension& other) { return other.number < one.number; });
  };
  std::string text = type_text<std::remove_const_t<typename View::value_type>>();
  for (const Dimension& one : kept) {
    text += &one == kept.data() ? '[' : ',';
    if (kept.size() > 1) text += "dim" + std::to_string(number_of(one)) + ':';
    text += std::to_string(one.extent);
  }
  return kept.empty() ? text : text + ']';
}

/// Calls `f(std::integral_constant<std::size_t, I>())` for each I below N, one after another.
template <std::size_t N>
void for_each_below(auto f) {
  [&]<std::size_t... I>(std::index_sequence<I...>) { (f(std::integral_constant<std::size_t, I>()), ...); }
  (std::make_index_sequence<N>());
}

/// The range of all elements of a View.
Range whole_of(const auto& view) {
  Range range;
  for (std::size_t k = 0; k < view.rank(); ++k) range.end[k] = static_cast<Index>(view.extent(k));
  return range;
}

}  // namespace sluice::kokkos::detail
