// SPDX-License-Identifier: Apache-2.0
// How a send and a receive of two ranks find each other.
#pragma once

#include "dialects/common/layout.hpp"
#include "dialects/common/operation.hpp"

#include <sluice/stream.hpp>

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <optional>

namespace sluice::stream_mpi {

class Job;

/// Whom a message goes to or comes from.
struct Envelope {
  MPI_Comm comm = MPI_COMM_NULL;
  int peer = MPI_PROC_NULL;
  int tag = 0;
};

/// @throws Refused{MPI_ERR_RANK} for a peer that is neither a rank of the communicator nor MPI_PROC_NULL, {MPI_ERR_TAG}
void check_rank_and_tag(const Envelope& envelope);

/// One side of a match: it makes an operation when the peer is ready.
///
/// The sender opens a channel with a tag of its own, and sends that and the size by MPI to the receiver, on the
/// communicator and with the tag of the program. So MPI's own order decides which requests belong together, and no
/// communicator needs a name.
class Pairing {
 public:
  Pairing() = default;
  Pairing(const Pairing&) = delete;
  Pairing& operator=(const Pairing&) = delete;
  virtual ~Pairing() = default;

  /// Goes on without blocking. True: `operation` and `bytes` are there. Not after it has thrown.
  /// @throws Error, Refused
  virtual bool advance() = 0;

  std::shared_ptr<Operation> operation;
  std::size_t bytes = 0;  ///< of the message
};

/// `gpu`: the stream of the queue, if it is one of a GPU.
std::unique_ptr<Pairing> pair_send(std::shared_ptr<Job> job, const Envelope& envelope, Layout layout,
                                   std::optional<Stream> gpu);
std::unique_ptr<Pairing> pair_receive(std::shared_ptr<Job> job, const Envelope& envelope, Layout layout,
                                      std::optional<Stream> gpu);

}  // namespace sluice::stream_mpi
