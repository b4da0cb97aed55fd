// SPDX-License-Identifier: Apache-2.0
// MPI Advance's stream MPI by libsluice_mpis, for the bench `stream_mpi`.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>

namespace bench {

/// Why this process cannot run MPI Advance's functions, in one line; empty: it can.
std::string why_no_stream_mpi();

// On a host stream of the program, or of the queue's own where the host synchronises with each step. Messages are in
// memory of MPIS_Alloc_mem or, with --memory user, in malloc'ed memory. Both functions move stamped messages once, and
// throw std::runtime_error if one is wrong.

/// A round trip: each rank starts its receive before the send that it answers.
std::unique_ptr<Contender> make_mpis_ping_pong(const Workload& workload);
/// A send to each neighbour and a receive from each, with a tag for each direction, and one wait for all.
std::unique_ptr<Contender> make_mpis_halo(const Workload& workload);

}  // namespace bench
