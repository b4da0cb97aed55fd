// SPDX-License-Identifier: Apache-2.0
// Datatypes of MPI for the plans of sluice/unr.hpp.
#pragma once

#include <sluice/error.hpp>
#include <sluice/unr.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::unr {

/// The layout of a committed datatype. MPI packs buffers in which each byte holds a part of its own offset, so any
/// datatype without negative offsets works, however it was made. Calls MPI on MPI_COMM_SELF.
/// @throws Error{Code::bad_argument} for a datatype with bytes before its beginning or a negative extent
inline Layout layout_of(MPI_Datatype type) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Aint true_lower = 0;
  MPI_Aint true_extent = 0;
  int size = 0;
  MPI_Type_get_extent(type, &lower, &extent);
  MPI_Type_get_true_extent(type, &true_lower, &true_extent);
  MPI_Type_size(type, &size);
  if (true_lower < 0 || extent < 0) throw Error(Code::bad_argument, -1, -1, 0, 0, "a datatype with negative offsets");
  Layout layout{{}, static_cast<std::size_t>(extent)};
  const auto span = static_cast<std::size_t>(true_lower + true_extent);
  std::vector<unsigned char> buffer(span);
  std::vector<unsigned char> packed(static_cast<std::size_t>(size));
  std::vector<std::size_t> offsets(packed.size());
  for (unsigned shift = 0; shift < 64 && (span >> shift) > 0; shift += 8) {
    for (std::size_t i = 0; i < span; ++i) buffer[i] = static_cast<unsigned char>(i >> shift);
    int position = 0;
    MPI_Pack(buffer.data(), 1, type, packed.data(), size, &position, MPI_COMM_SELF);
    for (std::size_t i = 0; i < packed.size(); ++i) offsets[i] |= static_cast<std::size_t>(packed[i]) << shift;
  }
  for (const std::size_t offset : offsets) {
    if (!layout.pieces.empty() && layout.pieces.back().offset + layout.pieces.back().bytes == offset) {
      ++layout.pieces.back().bytes;
    } else {
      layout.pieces.push_back({offset, 1});
    }
  }
  return layout;
}

}  // namespace sluice::unr
