// SPDX-License-Identifier: Apache-2.0
// A number for each communicator, which all of its ranks know without a message.
#pragma once

#include <mpi.h>

#include <cstdint>

namespace sluice::stream_mpi {

/// Gives a communicator that was just made its number. Collective over it. Null communicators and intercommunicators
/// are left as they are. A rank that the broadcast does not reach gets no number.
void number_communicator(MPI_Comm comm);

/// The number that no other communicator has, the same at all its ranks.
/// @throws Refused{kUnsupported} for an intercommunicator, and for one without a number: that of MPI_Comm_idup, and of
///   functions that this library does not stand before
std::uint64_t number_of(MPI_Comm comm);

/// From now on calls `work(number)` when a communicator is freed. MPI may hold its lock then. Any thread.
void at_free(void (*work)(std::uint64_t number));

}  // namespace sluice::stream_mpi
