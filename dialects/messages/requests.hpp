// SPDX-License-Identifier: Apache-2.0
// Requests of MPI's that stand for messages: generalized ones.
#pragma once

#include "dialects/messages/transfer.hpp"

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <optional>

namespace sluice::stream_mpi {

// MPICH and its descendants poll generalized requests by a function of this library. Other MPIs need a call of
// MPI_Grequest_complete from the thread of a stream, which few programs permit by MPI_THREAD_MULTIPLE.
#ifdef MPICH_NUMVERSION
inline constexpr bool kTestable = true;  ///< MPI_Test and MPI_Wait complete a request
#else
inline constexpr bool kTestable = false;
#endif

/// A request for a message. MPI's own functions may complete and free it, if it is testable.
MPI_Request make_request(std::shared_ptr<Transfer> message);
/// `owner` of its message; nothing for another request.
std::optional<std::weak_ptr<void>> owner_of(MPI_Request request);
/// Frees the request, and returns its message. @throws Refused{MPI_ERR_REQUEST} for another request
std::shared_ptr<Transfer> take_request(MPI_Request request);
/// Frees the oldest ones that are complete, and that the program has not waited for or tested, and keeps `most` of them
/// at least: programs drop them.
void free_requests(std::size_t most);

}  // namespace sluice::stream_mpi
