// SPDX-License-Identifier: Apache-2.0
// The way back of a halo: what ghosts have is combined into the elements that they mirror.
#pragma once

#include <sluice/kokkos/moves.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
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
  Index order = 0;  ///< its direction's place in the stencil
};

/// The dimensions of a View by stride, the smallest first: the order in which elements are packed.
template <class View>
struct Order {
  explicit Order(const View& view) {
    for (int k = 0; k < kRank; ++k) by_stride[k] = k;
    std::stable_sort(by_stride, by_stride + kRank, [&](int a, int b) { return view.stride(a) < view.stride(b); });
  }

  static constexpr int kRank = static_cast<int>(View::rank());
  int by_stride[kRank];
};

/// Each element near an edge takes what each message has for it, in the order of the stencil: so the result depends on
/// no scheduling.
template <class Exec, class View, class Operation>
struct Combine {
  static constexpr int kRank = static_cast<int>(View::rank());
  using Value = typename View::value_type;

  View view;
  Order<View> order;
  Index strides[kRank];
  Table<Range, Exec> shell;  ///< ranges that do not overlap
  Table<Index, Exec> first;  ///< of each, how many elements are before it
  Table<Part, Exec> parts;
  Table<Slot, Exec> slots;
  Index depth;
  Index slot;
  Operation operation;

  KOKKOS_FUNCTION void operator()(Index item) const {
    if (shell.extent(0) == 0) return;  // launched to be loaded
    std::size_t range = 0;
    while (range + 1 < shell.extent(0) && first(range + 1) <= item) ++range;
    Index at[kRank];
    item -= first(range);
    Index offset = 0;
    for (int k = 0; k < kRank; ++k) {
      const Index extent = shell(range).end[k] - shell(range).begin[k];
      at[k] = shell(range).begin[k] + item % extent;
      item /= extent;
      offset += at[k] * strides[k];
    }
    Value value = view.data()[offset];
    for (std::size_t i = 0; i < parts.extent(0); ++i) {
      const Index number = number_in(parts(i).range, at);
      if (number < 0) continue;
      const std::byte* const packed = slots(parts(i).message * depth + slot).data + parts(i).at;
      value = operation(value, reinterpret_cast<const Value*>(packed)[number]);
    }
    view.data()[offset] = value;
  }

 private:
  /// The place of an element in the packed range; -1: it is not in it.
  KOKKOS_FUNCTION Index number_in(const Range& range, const Index* at) const {
    Index number = 0;
    for (int i = kRank - 1; i >= 0; --i) {
      const int k = order.by_stride[i];
      if (at[k] < range.begin[k] || at[k] >= range.end[k]) return -1;
      number = number * (range.end[k] - range.begin[k]) + at[k] - range.begin[k];
    }
    return number;
  }
};

/// What a View takes from the messages that come back.
template <class Exec, class View>
class Combines {
 public:
  Combines(const Exec& exec, const std::vector<Range>& shell, const std::vector<Part>& parts) {
    std::vector<Index> first;
    for (const Range& range : shell) {
      first.push_back(items_);
      Index count = 1;
      for (std::size_t k = 0; k < View::rank(); ++k) count *= range.end[k] - range.begin[k];
      items_ += count;
    }
    shell_ = table_of(exec, shell);
    first_ = table_of(exec, first);
    parts_ = table_of(exec, parts);
  }

  /// Launches the kernel with nothing to do: what that is for, Moves says.
  template <class Operation>
  static void load(const Exec& exec, Operation operation) {
    launch(exec, "sluice: load", 1, empty(View(), operation));
  }

  template <class Operation>
  void enqueue(const Queue<Exec>& queue, const View& view, const Table<Slot, Exec>& slots, Index depth, Index slot,
               Operation operation, std::shared_ptr<const void> keep) const {
    Combine<Exec, View, Operation> combine = empty(view, operation);
    for (std::size_t k = 0; k < View::rank(); ++k) combine.strides[k] = static_cast<Index>(view.stride(k));
    combine.shell = shell_;
    combine.first = first_;
    combine.parts = parts_;
    combine.slots = slots;
    combine.depth = depth;
    combine.slot = slot;
    queue.parallel_for("sluice: combine", items_, std::move(combine), std::move(keep));
  }

 private:
  template <class Operation>
  static Combine<Exec, View, Operation> empty(const View& view, Operation operation) {
    return {view, Order<View>(view), {}, {}, {}, {}, {}, 1, 0, operation};
  }

  Index items_ = 0;
  Table<Range, Exec> shell_;
  Table<Index, Exec> first_;
  Table<Part, Exec> parts_;
};

}  // namespace detail
}  // namespace sluice::kokkos
