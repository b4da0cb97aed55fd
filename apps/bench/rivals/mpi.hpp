// SPDX-License-Identifier: Apache-2.0
// MPI as a rival. Call all of this from the rank's main thread.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>

namespace bench {

/// True if MPI runs in this process.
bool under_mpi();

/// True if libsluice_mpi_rma stands before MPI: its windows are Sluice's.
bool mpi_windows_are_ours();

/// The MPI that runs and the environment variables by which it has chosen a network, for people.
std::string mpi_library();

enum class MpiMode {
  send_recv,       ///< MPI_Send and MPI_Recv
  persistent,      ///< persistent requests
  put_flush,       ///< MPI_Put, MPI_Win_flush and a flag by MPI_Put, in memory that MPI has allocated
  put_flush_user,  ///< as put_flush, in memory of this program
  pscw,            ///< MPI_Put between MPI_Win_start and complete, and between post and wait
  fence            ///< MPI_Put between calls of MPI_Win_fence
};

/// @throws apps::UsageError if MPI does not run, or the program was built without it.
std::unique_ptr<Contender> make_mpi_ping_pong(MpiMode mode, const Workload& workload);
/// In all modes except pscw and fence, where the end of an epoch is not the end of a message.
std::unique_ptr<Contender> make_mpi_flood(MpiMode mode, const Workload& workload);
/// A halo by persistent requests.
std::unique_ptr<Contender> make_mpi_halo(const Workload& workload);
/// Steps of a ring by MPI_Isend and MPI_Irecv, with as many of each under way as channels have slots.
std::unique_ptr<Contender> make_mpi_ring(const Workload& workload);
/// The accesses of the bench `rma`, each ended by MPI_Win_flush.
std::unique_ptr<Contender> make_mpi_accesses(const Workload& workload);
/// A call of the bench `collectives`.
std::unique_ptr<Contender> make_mpi_collective(const Workload& workload);
/// The row alltoallv by puts to a window between fences, or with a flush and a barrier; no other row of `collectives`.
std::unique_ptr<Contender> make_mpi_fence_alltoallv(const Workload& workload);
std::unique_ptr<Contender> make_mpi_lock_alltoallv(const Workload& workload);
/// The hash table and the sparse exchange by the same accesses to a window of MPI's as ours.
std::unique_ptr<Contender> make_mpi_hash_table(const Workload& workload);
std::unique_ptr<Contender> make_mpi_inbox_exchange(const Workload& workload);
/// The sparse exchange by synchronous sends and a barrier that does not block, and by counts of messages in a window.
std::unique_ptr<Contender> make_mpi_nbx_exchange(const Workload& workload);
std::unique_ptr<Contender> make_mpi_rsx_exchange(const Workload& workload);
/// Steps of MPI_Isend and MPI_Irecv, computing, and MPI_Waitall.
std::unique_ptr<Contender> make_mpi_overlap(const Workload& workload);

}  // namespace bench
