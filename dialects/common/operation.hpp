// SPDX-License-Identifier: Apache-2.0
// Sends, receives and collectives: a stream starts them, and waits for them later.
#pragma once

#include <sluice/stream.hpp>
#include <sluice/types.hpp>

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace sluice::stream_mpi {

/// Each start is followed by its completion before the next start. It is driven by the thread of a host stream, in
/// program order, or by a GPU's stream, always by the same of the two.
///
/// On the host a start never blocks: what it cannot do yet, `advance` does later. So a stream that waits for several
/// operations waits for none of them first, and a send whose receiver is late holds nothing back.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  // By the thread of a host stream. @throws Error the failure of a channel
  virtual void start() = 0;
  /// Goes on without blocking. True: complete.
  virtual bool advance() = 0;
  /// Blocks until it is complete.
  virtual void finish() = 0;
  /// True if peers need nothing from this rank until it is complete: the thread may sleep in `finish`.
  virtual bool passive() const noexcept { return false; }

  // Enqueue their part on a GPU's stream, and return.
  virtual void enqueue_start(Stream stream) = 0;
  /// Once all that are waited for together are started: bytes leave.
  virtual void enqueue_move(Stream /*stream*/) {}
  virtual void enqueue_wait(Stream stream) = 0;

  /// Blocks until no peer uses the memory.
  virtual void close(std::optional<Timeout> timeout) = 0;
};

using Operations = std::vector<std::shared_ptr<Operation>>;
/// Operations of requests: a line copies the pointers only if it has to keep them.
using OperationList = std::span<const std::shared_ptr<Operation>* const>;

}  // namespace sluice::stream_mpi
