// SPDX-License-Identifier: Apache-2.0
// Kernels of a step: objects that are copied to their execution space, and so contain values and pointers only.
#pragma once

#include "apps/common/chunks.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>

namespace apps {

/// A model whose cells need their place in the block.
template <class Model>
concept KnowsPlace = requires(const Model& model, const typename Model::Value* at) {
  model.cell(at, Strides{}, Place{});
};

/// The update of a chunk: long rows as rows, narrow columns and GPUs cell by cell.
template <class Model, class Space>
struct Update {
  using Value = typename Model::Value;
  static constexpr Index kNarrow = 8;

  Chunks<Space> chunks;
  Model model;
  const Value* in;
  Value* out;
  Strides strides;
  Box block;

  KOKKOS_FUNCTION void operator()(Index i) const {
    if (Chunks<Space>::kCells && chunks.count() == 0) return;  // on a GPU, launched only to be loaded
    const Box box = chunks(i);
    for (Index y = box.y; y < box.y + box.ny; ++y) row(box, y);
  }

  /// One row of a chunk.
  KOKKOS_FUNCTION void row(const Box& box, Index y) const {
    const Index at = strides.offset(box.x, y, box.z);
    if constexpr (KnowsPlace<Model>) {
      row_at(at, box, {0, side(y, block.ny), side(box.z, block.nz)});
    } else if constexpr (Chunks<Space>::kCells) {
      out[at] = model.cell(in + at, strides);
    } else if (box.nx >= kNarrow) {
      model.row(in + at, strides, out + at, box.nx);
    } else {
      for (Index x = at; x < at + box.nx; ++x) out[x] = model.cell(in + x, strides);
    }
  }

 private:
  KOKKOS_FUNCTION static int side(Index place, Index n) { return place == 0 ? -1 : (place == n - 1 ? 1 : 0); }

  KOKKOS_FUNCTION void row_at(Index at, const Box& box, Place place) const {
    const Index end = box.x + box.nx;
    for (Index x = box.x; x < end; ++x, ++at) {
      place.x = side(x, block.nx);
      if constexpr (!Chunks<Space>::kCells) {
        if (place.x == 0 && place.y == 0 && place.z == 0) {
          const Index inner = std::min(end, block.nx - 1) - x;
          model.row(in + at, strides, out + at, inner);
          x += inner - 1;
          at += inner - 1;
          continue;
        }
      }
      out[at] = model.cell(in + at, strides, place);
    }
  }
};

/// Updates, and sums Model::measure row by row, while the row is in the cache.
template <class Model, class Space>
struct MeasuredUpdate {
  Update<Model, Space> kernel;

  KOKKOS_FUNCTION void operator()(Index i, double& sum) const {
    if (Chunks<Space>::kCells && kernel.chunks.count() == 0) return;
    const Box box = kernel.chunks(i);
    for (Index y = box.y; y < box.y + box.ny; ++y) {
      kernel.row(box, y);
      const Index at = kernel.strides.offset(box.x, y, box.z);
      sum += kernel.model.measure(kernel.in + at, kernel.out + at, box.nx);
    }
  }
};

}  // namespace apps
