// SPDX-License-Identifier: Apache-2.0
// The way back of a halo: the values of ghosts are combined into the elements that they mirror.
#pragma once

#include <sluice/kokkos/moves.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
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

/// The elements of a View in a message: `range`, packed from `at` on in the order of memory.
struct Part {
  Range range;
  Index message = 0;
  Index at = 0;
  Index order = 0;  ///< its direction's place in the stencil
};

/// A range that lies in several parts: `parts` lists their numbers, in order.
struct Overlap {
  Range range;
  std::vector<std::size_t> parts;
};

inline Range common_of(Range range, const Range& other, int rank) {
  for (int k = 0; k < rank; ++k) {
    range.begin[k] = std::max(range.begin[k], other.begin[k]);
    range.end[k] = std::min(range.end[k], other.end[k]);
  }
  return range;
}

/// Returns the elements of `ranges`, which do not overlap, that are not in `hole`.
inline std::vector<Range> without(const std::vector<Range>& ranges, const Range& hole, int rank) {
  std::vector<Range> rest;
  for (Range range : ranges) {
    const Range common = common_of(range, hole, rank);
    if (count_of(common, rank) == 0) {
      rest.push_back(range);
      continue;
    }
    for (int k = 0; k < rank; ++k) {
      for (const auto& [begin, end] :
           {std::pair(range.begin[k], common.begin[k]), std::pair(common.end[k], range.end[k])}) {
        if (begin >= end) continue;
        rest.push_back(range);
        rest.back().begin[k] = begin;
        rest.back().end[k] = end;
      }
      range.begin[k] = common.begin[k];
      range.end[k] = common.end[k];
    }
  }
  return rest;
}

/// Returns the elements of all parts as ranges that do not overlap. Large parts are cut first: the small ones of a halo
/// lie where large ones meet, and so add no cuts.
inline std::vector<Overlap> overlaps_of(const std::vector<Part>& parts, int rank) {
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t p) { return count_of(parts[p].range, rank); });
  std::vector<Overlap> all;
  for (const std::size_t p : order) {
    std::vector<Overlap> next;
    std::vector<Range> fresh{parts[p].range};
    for (Overlap& one : all) {
      const Range common = common_of(one.range, parts[p].range, rank);
      for (const Range& range : without({one.range}, common, rank)) next.push_back({range, one.parts});
      if (count_of(common, rank) == 0) continue;
      next.push_back({common, std::move(one.parts)});
      next.back().parts.push_back(p);
      fresh = without(fresh, common, rank);
    }
    for (const Range& range : fresh) next.push_back({range, {p}});
    all = std::move(next);
  }
  for (Overlap& one : all) std::ranges::sort(one.parts);
  return all;
}

/// The packed elements of a patch in one part: the place of the first, and the distance to the next along each
/// dimension.
struct Source {
  Index message = 0;
  Index at = 0;  ///< in bytes
  Index strides[kMostRanks] = {};
};

/// Elements of a View that lie in the same parts, as rows along dimension 0, which has the smallest stride.
struct Patch {
  Box box;            ///< without data: each call gives its View
  Index offset = 0;   ///< of the first element in the View
  Index sources = 0;  ///< the number of its first one
  Index parts = 0;    ///< how many they are
  Index first = 0;    ///< how many work items the patches before it are
  Index rows = 1;     ///< of an item

  KOKKOS_FUNCTION Index run() const { return box.extents[0]; }
  KOKKOS_FUNCTION Index all_rows() const { return box.count() / run(); }
};

/// Makes the patch of a range. Drops dimensions of one element; merges dimensions that have no gap between them,
/// neither in the View nor in any message.
template <class View>
Patch patch_of(const View& view, const Overlap& overlap, const std::vector<Part>& parts, std::vector<Source>& sources) {
  Patch patch;
  std::vector<Source> mine;
  for (const std::size_t p : overlap.parts) mine.push_back({parts[p].message, parts[p].at, {}});
  std::vector<Index> packed(mine.size(), 1);  // the distance along the next dimension
  Box& box = patch.box;
  for (const auto& [k, extent, stride] : by_stride(view, overlap.range)) {
    patch.offset += overlap.range.begin[k] * stride;
    bool joins = box.joins(stride);
    for (std::size_t s = 0; s < mine.size(); ++s)
      joins = joins && packed[s] == mine[s].strides[box.rank - 1] * box.extents[box.rank - 1];
    if (extent != 1) box.add(extent, stride, joins);
    for (std::size_t s = 0; s < mine.size(); ++s) {
      const Range& range = parts[overlap.parts[s]].range;
      if (extent != 1 && !joins) mine[s].strides[box.rank - 1] = packed[s];
      mine[s].at += (overlap.range.begin[k] - range.begin[k]) * packed[s] * static_cast<Index>(sizeof(*view.data()));
      packed[s] *= range.end[k] - range.begin[k];
    }
  }
  if (box.rank == 0) box.add(1, 1, false);
  patch.sources = static_cast<Index>(sources.size());
  patch.parts = static_cast<Index>(mine.size());
  sources.insert(sources.end(), mine.begin(), mine.end());
  return patch;
}

/// Combines the values of all parts into each element of the View, in the order of the stencil, so that the result does
/// not depend on scheduling. An item of work is some rows on the host, an element on a GPU.
template <class Exec, class Value, class Operation>
struct Combine {
  Value* view = nullptr;
  const Patch* patches = nullptr;
  Index count = 0;  ///< of patches
  const Source* sources = nullptr;
  const Slot* slots = nullptr;  ///< of message m: slots[m * depth + slot]
  Index depth = 1;
  Index slot = 0;
  Operation operation;

  KOKKOS_FUNCTION void operator()(Index item) const {
    if (count == 0) return;  // launched to be loaded
    const Patch& patch = with_item(patches, count, item);
    item -= patch.first;
    if constexpr (kByElement<Exec>) {
      combine(patch, item / patch.run(), item % patch.run(), 1);
    } else {
      const Index end = std::min((item + 1) * patch.rows, patch.all_rows());
      for (Index row = item * patch.rows; row < end; ++row) combine(patch, row, 0, patch.run());
    }
  }

 private:
  /// `run` elements of a row, from `begin` on.
  KOKKOS_FUNCTION void combine(const Patch& patch, Index row, Index begin, Index run) const {
    Index at[kMostRanks];
    const Box& box = patch.box;
    Value* mine = view + patch.offset + begin * box.strides[0];
    for (int k = 1; k < box.rank; ++k) {
      at[k] = row % box.extents[k];
      row /= box.extents[k];
      mine += at[k] * box.strides[k];
    }
    for (Index part = 0; part < patch.parts; ++part) {
      const Source& source = sources[patch.sources + part];
      const std::byte* const packed = slots[source.message * depth + slot].data + source.at;
      const auto* theirs = reinterpret_cast<const Value*>(packed) + begin * source.strides[0];
      for (int k = 1; k < box.rank; ++k) theirs += at[k] * source.strides[k];
      const Index step = box.strides[0], their_step = source.strides[0];
      if (step == 1 && their_step == 1) {
        for (Index i = 0; i < run; ++i) mine[i] = operation(mine[i], theirs[i]);
      } else {
        for (Index i = 0; i < run; ++i) mine[i * step] = operation(mine[i * step], theirs[i * their_step]);
      }
    }
  }
};

/// The kernels that combine received ghosts into one View.
template <class Exec, class View>
class Combines {
  using Value = typename View::value_type;

 public:
  Combines() = default;
  Combines(const Exec& exec, const View& view, const std::vector<Part>& parts) {
    std::vector<Patch> patches;
    std::vector<Source> sources;
    for (const Overlap& overlap : overlaps_of(parts, static_cast<int>(View::rank()))) {
      Patch patch = patch_of(view, overlap, parts, sources);
      patch.first = items_;
      patch.rows = rows_of_item<Exec>(patch.run() * static_cast<Index>(sizeof(Value)));
      items_ += items_of<Exec>(patch.run(), patch.all_rows(), patch.rows);
      bytes_ += patch.box.count() * patch.parts * static_cast<Index>(sizeof(Value));
      patches.push_back(patch);
    }
    patches_ = table_of(exec, patches);
    sources_ = table_of(exec, sources);
  }

  /// Launches the kernel with nothing to do: see load_kernels.
  static void load(const Exec& exec, auto operation) {
    launch(exec, "sluice: load", 1, Combine<Exec, Value, decltype(operation)>{.operation = operation});
  }

  template <class Operation>
  void enqueue(const Queue<Exec>& queue, const View& view, const Table<Slot, Exec>& slots, Index depth, Index slot,
               Operation operation, const std::shared_ptr<const void>& keep) const {
    static_assert(alignof(Value) <= kAligned, "scatter reads elements where they were packed, aligned to 16 bytes");
    const Combine<Exec, Value, Operation> combine{
        view.data(), patches_.data(), static_cast<Index>(patches_.extent(0)), sources_.data(), slots.data(), depth,
        slot,        operation};
    queue.move("sluice: combine", items_, bytes_, combine, keep, view, patches_, sources_, slots);
  }

 private:
  Index items_ = 0;
  Index bytes_ = 0;  // that it reads of messages
  Table<Patch, Exec> patches_;
  Table<Source, Exec> sources_;
};

}  // namespace detail
}  // namespace sluice::kokkos
