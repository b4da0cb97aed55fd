// SPDX-License-Identifier: Apache-2.0
// The way back of a halo: what ghosts have is combined into the elements that they mirror.
#pragma once

#include <sluice/kokkos/box.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <vector>

namespace sluice::kokkos {

/// How a ghost's value is combined into its owner's.
struct Sum {
  template <class T>
  KOKKOS_FUNCTION T operator()(const T& mine, const T& theirs) const {
    return mine + theirs;
  }
};
struct Min {
  template <class T>
  KOKKOS_FUNCTION T operator()(const T& mine, const T& theirs) const {
    return theirs < mine ? theirs : mine;
  }
};
struct Max {
  template <class T>
  KOKKOS_FUNCTION T operator()(const T& mine, const T& theirs) const {
    return mine < theirs ? theirs : mine;
  }
};
/// The ghost's value; of several, that of the last direction of the stencil.
struct Replace {
  template <class T>
  KOKKOS_FUNCTION T operator()(const T&, const T& theirs) const {
    return theirs;
  }
};

namespace detail {

/// An index range per dimension: [begin, end).
struct Range {
  Index begin[kMostRanks] = {};
  Index end[kMostRanks] = {};
};

/// What of a message is for a View: the elements of `range`, packed from `at` on in the order of memory.
struct Part {
  Range range;
  Index message = 0;
  Index at = 0;
};

/// Elements of a View by index, and in which order its dimensions are packed.
template <class T>
struct Field {
  T* data = nullptr;
  int rank = 0;
  Index strides[kMostRanks] = {};
  int order[kMostRanks] = {};  ///< dimensions by stride, the smallest first
};

/// Each element near an edge takes what each message has for it, in the order of the messages: so the result depends on
/// no scheduling.
template <class T, class Operation>
struct Combine {
  Field<T> field;
  const Range* shell;  ///< ranges that do not overlap
  const Index* first;  ///< of each, how many elements are before it
  Index shells;
  const Part* parts;
  Index count;
  std::byte* const* slots;
  Index depth;
  Index slot;
  Operation operation;

  KOKKOS_FUNCTION void operator()(Index item) const {
    Index range = 0;
    while (range + 1 < shells && first[range + 1] <= item) ++range;
    Index at[kMostRanks];
    item -= first[range];
    Index offset = 0;
    for (int k = 0; k < field.rank; ++k) {
      const Index extent = shell[range].end[k] - shell[range].begin[k];
      at[k] = shell[range].begin[k] + item % extent;
      item /= extent;
      offset += at[k] * field.strides[k];
    }
    T value = field.data[offset];
    for (Index i = 0; i < count; ++i) {
      const Index number = number_in(parts[i].range, at);
      if (number < 0) continue;
      const std::byte* const packed = slots[parts[i].message * depth + slot] + parts[i].at;
      value = operation(value, reinterpret_cast<const T*>(packed)[number]);
    }
    field.data[offset] = value;
  }

 private:
  /// The place of an element in the packed range; -1: it is not in it.
  KOKKOS_FUNCTION Index number_in(const Range& range, const Index* at) const {
    Index number = 0;
    for (int i = field.rank - 1; i >= 0; --i) {
      const int k = field.order[i];
      if (at[k] < range.begin[k] || at[k] >= range.end[k]) return -1;
      number = number * (range.end[k] - range.begin[k]) + at[k] - range.begin[k];
    }
    return number;
  }
};

}  // namespace detail
}  // namespace sluice::kokkos
