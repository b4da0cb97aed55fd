// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

namespace apps {

/// A duplicate of MPI_COMM_WORLD, freed with this object.
class MpiWorld {
 public:
  /// @throws UsageError if MPI does not run: the program was not started by mpiexec or srun.
  MpiWorld();
  ~MpiWorld() { MPI_Comm_free(&communicator_); }
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  MPI_Comm communicator() const { return communicator_; }

 private:
  MPI_Comm communicator_ = MPI_COMM_NULL;
};

}  // namespace apps
