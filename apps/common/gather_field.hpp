// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"
#include "apps/common/host_collectives.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

namespace apps {

/// Returns the whole field, row by row and plane by plane, at rank 0; nothing at the others. `cells` is the first cell
/// of this rank's block.
template <class T>
std::vector<T> gather_field(HostCollectives& collectives, const Decomposition& decomposition, int rank, const T* cells,
                            const Strides& strides) {
  const Box mine = decomposition.box(rank);
  std::vector<T> block(static_cast<std::size_t>(mine.cells()));
  for (Index z = 0; z < mine.nz; ++z)
    for (Index y = 0; y < mine.ny; ++y)
      std::copy_n(cells + strides.offset(0, y, z), mine.nx, block.data() + (z * mine.ny + y) * mine.nx);

  std::vector<std::size_t> bytes_of;
  for (int r = 0; r < decomposition.ranks(); ++r)
    bytes_of.push_back(static_cast<std::size_t>(decomposition.box(r).cells()) * sizeof(T));

  const Mesh& mesh = decomposition.mesh();
  std::vector<T> whole(rank == 0 ? static_cast<std::size_t>(mesh.cells()) : 0);
  collectives.gather(std::as_bytes(std::span<const T>(block)), bytes_of,
                     [&](int from, std::span<const std::byte> bytes) {
                       const Box box = decomposition.box(from);
                       const std::size_t row_bytes = static_cast<std::size_t>(box.nx) * sizeof(T);
                       for (Index z = 0; z < box.nz; ++z)
                         for (Index y = 0; y < box.ny; ++y)
                           std::memcpy(&whole[((box.z + z) * mesh.ny + box.y + y) * mesh.nx + box.x],
                                       bytes.data() + (z * box.ny + y) * row_bytes, row_bytes);
                     });
  return whole;
}

}  // namespace apps
