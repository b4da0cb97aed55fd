// SPDX-License-Identifier: Apache-2.0
// Ranks of communicators as those of MPI_COMM_WORLD.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <numeric>
#include <vector>

namespace sluice::mpi_rma {

/// Returns ranks of `comm` as ranks of MPI_COMM_WORLD; MPI_UNDEFINED: a process that was spawned.
inline std::vector<int> in_world(MPI_Comm comm, const std::vector<int>& ranks) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  std::vector<int> there(ranks.size());
  PMPI_Group_translate_ranks(group, static_cast<int>(ranks.size()), ranks.data(), world, there.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  return there;
}

inline std::vector<int> all_ranks(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace sluice::mpi_rma
