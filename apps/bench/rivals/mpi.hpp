// SPDX-License-Identifier: Apache-2.0
// MPI as a rival. All of it is called from the rank's main thread.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>

namespace bench {

/// True if MPI runs in this process.
bool under_mpi();

/// The MPI that runs, and the variables of its environment that choose the network.
std::string mpi_library();

enum class MpiMode { send_recv, persistent, put_flush, put_flush_user, pscw, fence };

/// @throws apps::UsageError if MPI does not run, or the program was built without it.
std::unique_ptr<Contender> make_mpi_ping_pong(MpiMode mode, const Workload& workload);
/// All modes except pscw and fence, in which the end of an epoch is not the end of a message.
std::unique_ptr<Contender> make_mpi_flood(MpiMode mode, const Workload& workload);
/// Persistent requests.
std::unique_ptr<Contender> make_mpi_halo(const Workload& workload);
/// Isend and Irecv, compute, Waitall.
std::unique_ptr<Contender> make_mpi_overlap(const Workload& workload);

}  // namespace bench
