// SPDX-License-Identifier: Apache-2.0
// Collectives as operations.
#pragma once

#include "dialects/common/pairing.hpp"

#include <mpi.h>

#include <memory>

namespace sluice::stream_mpi {

class Job;

/// Collective over `comm`, whose ranks agree on a name: it is paired once rank 0 has called this, too.
std::unique_ptr<Pairing> pair_barrier(std::shared_ptr<Job> job, MPI_Comm comm);

struct Reduction {
  const void* from = nullptr;  ///< may be MPI_IN_PLACE
  void* to = nullptr;
  int count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
};
/// As `pair_barrier`. @throws Refused for an operation that is not defined for the type, elements that do not follow
/// each other, and an operation that needs MPI where MPI does not permit calls of several threads
std::unique_ptr<Pairing> pair_allreduce(const std::shared_ptr<Job>& job, MPI_Comm comm, const Reduction& reduction);

}  // namespace sluice::stream_mpi
