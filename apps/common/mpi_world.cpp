// SPDX-License-Identifier: Apache-2.0
#include "apps/common/mpi_world.hpp"

#include "apps/common/usage_error.hpp"

namespace apps {

MpiWorld::MpiWorld() {
  int running = 0;
  MPI_Initialized(&running);
  if (running == 0)
    throw UsageError("--comm mpi and mpi_persistent need a start under MPI: mpiexec -n N ... (or srun)");
  MPI_Comm_dup(MPI_COMM_WORLD, &communicator_);
}

}  // namespace apps
