// SPDX-License-Identifier: Apache-2.0
// Stands in for the rivals of MPI in a build without it.
#include "apps/bench/rivals/mpi.hpp"
#include "apps/common/usage_error.hpp"

namespace bench {
namespace {

[[noreturn]] std::unique_ptr<Contender> refuse() {
  throw apps::UsageError("rivals of MPI are not possible: this program was built without MPI");
}

}  // namespace

bool under_mpi() { return false; }
bool mpi_windows_are_ours() { return false; }
std::string mpi_library() { return {}; }

std::unique_ptr<Contender> make_mpi_ping_pong(MpiMode /*mode*/, const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_flood(MpiMode /*mode*/, const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_halo(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_ring(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_accesses(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_collective(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_fence_alltoallv(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_lock_alltoallv(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_hash_table(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_inbox_exchange(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_nbx_exchange(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_rsx_exchange(const Workload& /*workload*/) { refuse(); }
std::unique_ptr<Contender> make_mpi_overlap(const Workload& /*workload*/) { refuse(); }

}  // namespace bench
