// SPDX-License-Identifier: Apache-2.0
// What a step runs in an execution space: objects that are copied to where they run, and so hold values and pointers
// only.
#pragma once

#include "apps/common/chunks.hpp"
#include "apps/common/halo_buffers.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>

namespace apps {

/// Where the cells of a box are in the field, counted from cell (0, 0), and where they are packed, in each slot.
template <class Value>
struct Transfer {
  Index at;
  Value* slots[kSlots];
};

/// Cells of the field, and the ghosts of the same block that mirror them.
struct Mirror {
  Index from;
  Index to;
};

/// Copies what `part` says of rows that begin at `from` and `to`.
template <class Value>
KOKKOS_FUNCTION void copy_rows(const Value* from, Index from_pitch, Value* to, Index to_pitch, const Box& part) {
  from += part.y * from_pitch + part.x;
  to += part.y * to_pitch + part.x;
  if (part.nx == 1) {
    for (Index y = 0; y < part.ny; ++y) to[y * to_pitch] = from[y * from_pitch];
    return;
  }
  for (Index y = 0; y < part.ny; ++y) std::copy_n(from + y * from_pitch, part.nx, to + y * to_pitch);
}

/// Packs all messages, and copies what the block mirrors itself: the boxes are those of `transfers`, then of `mirrors`.
template <class Value, class Reader>
struct Pack {
  Reader chunks;
  const Transfer<Value>* transfers;
  Index transfer_count;
  const Mirror* mirrors;
  Value* field;
  Index pitch;
  int slot;

  KOKKOS_FUNCTION void operator()(Index i) const {
    const auto [box, part] = chunks(i);
    if (box < transfer_count) {
      const Transfer<Value>& transfer = transfers[box];
      copy_rows(field + transfer.at, pitch, transfer.slots[slot], chunks.entries[box].box.nx, part);
    } else {
      const Mirror& mirror = mirrors[box - transfer_count];
      copy_rows(field + mirror.from, pitch, field + mirror.to, pitch, part);
    }
  }
};

template <class Value, class Reader>
struct Unpack {
  Reader chunks;
  const Transfer<Value>* transfers;
  Value* field;
  Index pitch;
  int slot;

  KOKKOS_FUNCTION void operator()(Index i) const {
    const auto [box, part] = chunks(i);
    const Transfer<Value>& transfer = transfers[box];
    copy_rows(transfer.slots[slot], chunks.entries[box].box.nx, field + transfer.at, pitch, part);
  }
};

/// The update of a chunk: rows where rows are long, cell by cell in narrow columns and on a GPU.
template <class Model, class Reader>
struct Update {
  using Value = typename Model::Value;
  static constexpr Index kNarrow = 8;

  Reader chunks;
  Model model;
  const Value* in;
  Value* out;
  Index pitch;

  KOKKOS_FUNCTION void operator()(Index i) const { update(chunks(i).cells); }

  KOKKOS_FUNCTION void update(const Box& box) const {
    if constexpr (Reader::kCells) {
      const Index at = box.y * pitch + box.x;
      out[at] = model.cell(in + at, pitch);
    } else {
      update_rows(box);
    }
  }

 private:
  KOKKOS_FUNCTION void update_rows(const Box& box) const {
    for (Index y = box.y; y < box.y + box.ny; ++y) {
      const Index at = y * pitch + box.x;
      if (box.nx >= kNarrow) {
        model.row(in + at, pitch, out + at, box.nx);
      } else {
        for (Index x = at; x < at + box.nx; ++x) out[x] = model.cell(in + x, pitch);
      }
    }
  }
};

/// Updates, and sums Model::measure; row by row, while the row is in the cache.
template <class Model, class Reader>
struct MeasuredUpdate {
  Update<Model, Reader> kernel;

  KOKKOS_FUNCTION void operator()(Index i, double& sum) const {
    const Box box = kernel.chunks(i).cells;
    for (Index y = box.y; y < box.y + box.ny; ++y) {
      kernel.update({box.x, y, box.nx, 1});
      const Index at = y * kernel.pitch + box.x;
      sum += kernel.model.measure(kernel.in + at, kernel.out + at, box.nx);
    }
  }
};

}  // namespace apps
