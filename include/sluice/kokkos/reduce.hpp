// SPDX-License-Identifier: Apache-2.0
// The way back of a halo: what ghosts have is combined into the elements that they mirror.
#pragma once

#include <sluice/kokkos/moves.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
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

/// What of a message is for a View: the elements of `range`, packed from `at` on in the order of memory.
struct Part {
  Range range;
  Index message = 0;
  Index at = 0;
  Index order = 0;  ///< its direction's place in the stencil
};

inline Index count_of(const Range& range, int rank) {
  Index count = 1;
  for (int k = 0; k < rank; ++k) count *= range.end[k] - range.begin[k];
  return count;
}

/// Appends what of `range` is not in `hole`, in ranges that do not overlap.
inline void cut(Range range, const Range& hole, int rank, std::vector<Range>& rest) {
  for (int k = 0; k < rank; ++k) {
    if (hole.end[k] <= range.begin[k] || range.end[k] <= hole.begin[k]) return rest.push_back(range);
  }
  for (int k = 0; k < rank; ++k) {
    const auto keep = [&](Index begin, Index end) {
      if (begin >= end) return;
      rest.push_back(range);
      rest.back().begin[k] = begin;
      rest.back().end[k] = end;
    };
    keep(range.begin[k], hole.begin[k]);
    keep(hole.end[k], range.end[k]);
    range.begin[k] = std::max(range.begin[k], hole.begin[k]);
    range.end[k] = std::min(range.end[k], hole.end[k]);
  }
}

/// The elements of all parts, in ranges that do not overlap. The large ones first: they hold most of the small ones.
inline std::vector<Range> union_of(std::vector<Part> parts, int rank) {
  std::ranges::stable_sort(parts, std::greater(), [&](const Part& part) { return count_of(part.range, rank); });
  std::vector<Range> all;
  for (const Part& part : parts) {
    std::vector<Range> fresh{part.range};
    for (const Range& seen : all) {
      std::vector<Range> rest;
      for (const Range& range : fresh) cut(range, seen, rank, rest);
      fresh = std::move(rest);
    }
    all.insert(all.end(), fresh.begin(), fresh.end());
  }
  return all;
}

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

/// Each element that parts have takes what each message has for it, in the order of the stencil: so the result depends
/// on no scheduling.
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
  Combines(const Exec& exec, const std::vector<Part>& parts) {
    constexpr int kRank = static_cast<int>(View::rank());
    const std::vector<Range> shell = union_of(parts, kRank);
    std::vector<Index> first;
    for (const Range& range : shell) {
      first.push_back(items_);
      items_ += count_of(range, kRank);
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
               Operation operation, const std::shared_ptr<const void>& keep) const {
    static_assert(alignof(typename View::value_type) <= kAligned,
                  "scatter reads elements where they were packed, aligned to 16 bytes");
    Combine<Exec, View, Operation> combine = empty(view, operation);
    for (std::size_t k = 0; k < View::rank(); ++k) combine.strides[k] = static_cast<Index>(view.stride(k));
    combine.shell = shell_;
    combine.first = first_;
    combine.parts = parts_;
    combine.slots = slots;
    combine.depth = depth;
    combine.slot = slot;
    queue.parallel_for("sluice: combine", items_, combine, keep);
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
