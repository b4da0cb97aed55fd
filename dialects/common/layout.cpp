// SPDX-License-Identifier: Apache-2.0
#include "dialects/common/layout.hpp"

#include <algorithm>

#include "rma/mpi/refused.hpp"
#include "rma/mpi/types.hpp"

namespace sluice::stream_mpi {

using mpi_rma::Refused;

Layout::Layout(const void* buffer, MPI_Count count, MPI_Datatype type) {
  const mpi_rma::Flat& flat = mpi_rma::flat_of(type);
  if (count == 0 || flat.bytes == 0) return;
  std::ptrdiff_t all = 0;
  if (__builtin_mul_overflow(static_cast<std::ptrdiff_t>(flat.bytes), count, &all))
    throw Refused(MPI_ERR_COUNT, "a message of 2^63 bytes or more");
  bytes_ = static_cast<std::size_t>(all);
  auto* const base = static_cast<std::byte*>(const_cast<void*>(buffer));
  mpi_rma::each_piece(flat, static_cast<std::size_t>(count), [&](std::ptrdiff_t offset, std::size_t bytes) {
    pieces_.push_back({base + offset, bytes});
  });
}

void Layout::pack(std::byte* packed, Copy* copy) const {
  for (const Piece& piece : pieces_) {
    copy(packed, piece.at, piece.bytes);
    packed += piece.bytes;
  }
}

void Layout::unpack(const std::byte* packed, std::size_t bytes, Copy* copy) const {
  for (const Piece& piece : pieces_) {
    const std::size_t part = std::min(bytes, piece.bytes);
    if (part > 0) copy(piece.at, packed, part);
    packed += part;
    bytes -= part;
  }
}

}  // namespace sluice::stream_mpi
