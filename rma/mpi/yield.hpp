// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sluice::mpi_rma {

/// From now on MPI's waits give their core away, if there are more ranks on this host than cores.
void yield_if_crowded(int ranks_here);

}  // namespace sluice::mpi_rma
