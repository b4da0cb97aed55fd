// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

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

/// A communicator of some ranks of MPI_COMM_WORLD, freed with this object.
class MpiGroup {
 public:
  /// All of the ranks make one together. @throws UsageError as MpiWorld
  explicit MpiGroup(const std::vector<int>& ranks);
  ~MpiGroup() { MPI_Comm_free(&communicator_); }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  MPI_Comm communicator() const { return communicator_; }

 private:
  MPI_Comm communicator_ = MPI_COMM_NULL;
};

/// All ranks of MPI_COMM_WORLD. @throws UsageError as MpiWorld
std::vector<int> world_ranks();

/// The group of these ranks, one for all that use it at the same time. All of the ranks call it in the same order.
/// @throws UsageError as MpiWorld
std::shared_ptr<const MpiGroup> shared_group(const std::vector<int>& ranks);

/// Counts of MPI are ints. All ranks of the communicator call it, and throw alike: one reports the error, and none
/// waits for a rank that has given up.
/// @param largest  of the counts and offsets of this rank, in `unit`
/// @throws UsageError
void check_counts(MPI_Comm communicator, unsigned long long largest, const std::string& what, const std::string& unit);

}  // namespace apps
