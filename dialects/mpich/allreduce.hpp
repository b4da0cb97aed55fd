// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dialects/common/collectives.hpp"
#include "dialects/common/line.hpp"

#include <mpi.h>

namespace sluice::mpich {

/// Collective over `comm`. @throws Refused, Error
void enqueue_allreduce(stream_mpi::Line& line, MPI_Comm comm, const stream_mpi::Reduction& reduction);

}  // namespace sluice::mpich
