// SPDX-License-Identifier: Apache-2.0
#include "apps/common/mpi_world.hpp"

#include "apps/common/usage_error.hpp"

#include <limits>
#include <map>
#include <numeric>

namespace apps {
namespace {

void check_running() {
  int running = 0;
  MPI_Initialized(&running);
  if (running == 0)
    throw UsageError("--comm mpi and mpi_persistent need a start under MPI: mpiexec -n N ... (or srun)");
}

}  // namespace

MpiWorld::MpiWorld() {
  check_running();
  MPI_Comm_dup(MPI_COMM_WORLD, &communicator_);
}

MpiGroup::MpiGroup(const std::vector<int>& ranks) {
  check_running();
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &some);
  MPI_Comm_create_group(MPI_COMM_WORLD, some, 0, &communicator_);
  MPI_Group_free(&some);
  MPI_Group_free(&world);
}

std::vector<int> world_ranks() {
  check_running();
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::shared_ptr<const MpiGroup> shared_group(const std::vector<int>& ranks) {
  static std::map<std::vector<int>, std::weak_ptr<const MpiGroup>> groups;
  std::weak_ptr<const MpiGroup>& known = groups[ranks];
  std::shared_ptr<const MpiGroup> group = known.lock();
  if (group == nullptr) known = group = std::make_shared<const MpiGroup>(ranks);
  return group;
}

void check_counts(MPI_Comm communicator, unsigned long long largest, const std::string& what, const std::string& unit) {
  MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_UNSIGNED_LONG_LONG, MPI_MAX, communicator);
  if (largest > static_cast<unsigned long long>(std::numeric_limits<int>::max()))
    throw UsageError(what + " of " + std::to_string(largest) + " " + unit + " is too long for MPI");
}

}  // namespace apps
