// SPDX-License-Identifier: Apache-2.0
// Starts of messages and waits for them, in the order of a stream.
#pragma once

#include "dialects/common/line.hpp"
#include "dialects/messages/transfer.hpp"

#include <mpi.h>

#include <memory>
#include <vector>

namespace sluice::stream_mpi {

/// The line of a stream, a sluice_host_stream* or a stream of a GPU. @throws Error{Code::unsupported} for a stream that
/// cannot be driven here
std::unique_ptr<Line> make_message_line(void* const* variable);

/// The stream starts all messages in its order. A stream that has stopped drops them, and they fail.
void enqueue_start(Line& line, std::vector<std::shared_ptr<Transfer>> messages);

struct Awaited {
  std::shared_ptr<Transfer> message;
  MPI_Status* status = MPI_STATUS_IGNORE;  ///< is written by the stream
};
/// Later work on the stream runs when all are complete, or have failed: after SLUICE_TIMEOUT at the latest.
void enqueue_wait(Line& line, std::vector<Awaited> messages);

}  // namespace sluice::stream_mpi
