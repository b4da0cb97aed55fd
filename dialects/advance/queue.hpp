// SPDX-License-Identifier: Apache-2.0
// Queues of MPI Advance's.
#pragma once

#include "dialects/advance/request.hpp"
#include "dialects/common/line.hpp"

#include <sluice/dialects/mpis.h>

#include <memory>
#include <span>
#include <vector>

namespace sluice::advance {

/// Requests are started on it, in the order of its stream.
class Queue {
 public:
  explicit Queue(std::unique_ptr<stream_mpi::Line> line) : line_(std::move(line)), on_gpu_(line_->gpu().has_value()) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  /// What is started on it can be freed afterwards, or has been and ends.
  ~Queue();

  stream_mpi::Line& line() const noexcept { return *line_; }
  bool on_gpu() const noexcept { return on_gpu_; }
  /// Starts all, or throws Refused and starts none.
  void start(std::span<MPIS_Request> requests);
  /// Later work on the stream waits for all that was started since the last call.
  void wait_all();
  /// Blocks until all has run. Returns the first error since the last call, as a code; 0: none.
  int wait();
  /// Keeps a request that the program has freed, and that is started on this queue: until `wait_all`, on a GPU's stream
  /// until the `wait` behind it, or until its own end.
  void keep(std::shared_ptr<Request> freed) { freed_.push_back(std::move(freed)); }

 private:
  void check_start(const MPIS_Request_struct& handle);
  void forget_started() noexcept;

  std::unique_ptr<stream_mpi::Line> line_;
  bool on_gpu_;
  std::vector<Request*> starting_;                                         // keeps its memory
  std::vector<Request*> started_;                                          // a request that is started lives
  std::vector<const std::shared_ptr<stream_mpi::Operation>*> operations_;  // those of `started_`
  std::vector<std::shared_ptr<Request>> freed_;                            // of `started_`
  std::vector<std::shared_ptr<Request>> on_stream_;                        // freed ones, which a GPU's stream waits for
};

/// The queues of this process. Any thread.
MPIS_Queue add_queue(std::shared_ptr<Queue> queue);
/// Valid until `take_queue`. @throws Refused{MPI_ERR_ARG} if there is none, as the next function does
Queue& queue_of(MPIS_Queue handle);
std::shared_ptr<Queue> take_queue(MPIS_Queue handle);
/// The youngest that is alive. @throws Refused{kInvalidState} without one
std::shared_ptr<Queue> youngest_queue();
/// The youngest queue if all living queues are of one kind; null if they are not, or if there is none.
std::shared_ptr<Queue> youngest_of_one_kind();
/// Waits for all, and drops them and the requests that are left.
void end_queues();

/// Blocks until the match, which has begun, is complete. @throws Error{Code::timeout}; what it has failed of
void complete_match(Request& request);

}  // namespace sluice::advance
