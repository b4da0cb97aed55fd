// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dialects/messages/transfer.hpp"

#include <mpi.h>

#include <memory>

namespace sluice::stream_mpi {

/// The arguments of a send or a receive.
struct Arguments {
  const void* buffer = nullptr;
  int count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int peer = MPI_PROC_NULL;
  int tag = 0;
  MPI_Comm comm = MPI_COMM_NULL;
};

/// A message that has no place in its lane yet. @throws Refused for wrong arguments and wildcards; Error
std::shared_ptr<Transfer> make_transfer(const Arguments& arguments, Direction direction);

}  // namespace sluice::stream_mpi
