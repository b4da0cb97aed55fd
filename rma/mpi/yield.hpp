// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

namespace sluice::mpi_rma {

/// Collective over `comm`: finds out whether its ranks on this host outnumber the cores that they may use together,
/// each of which may be bound to one. If so, MPI's waits give their core away from now on.
void yield_if_crowded(MPI_Comm comm);

/// True if ranks on this host outnumber their cores, as far as `yield_if_crowded` has found.
bool crowded() noexcept;

}  // namespace sluice::mpi_rma
