// SPDX-License-Identifier: Apache-2.0
// A queue of Cray's on a host stream.
#pragma once

#include <sluice/dialects/cray.h>

#include <vector>

#include "tests/mpix/host_order.hpp"

namespace stream_mpi_test {

class CrayQueue : public HostOrder {
 public:
  explicit CrayQueue(MPI_Comm comm = MPI_COMM_WORLD) {
    expect_equal(MPIX_Create_queue(comm, handle_of_stream(), &queue), MPI_SUCCESS, "a queue");
  }
  CrayQueue(const CrayQueue&) = delete;
  CrayQueue& operator=(const CrayQueue&) = delete;
  ~CrayQueue() { expect_equal(MPIX_Free_queue(queue), MPI_SUCCESS, "the end of a queue"); }

  void send(const std::vector<int>& buffer, int peer, int tag = 0, MPI_Comm comm = MPI_COMM_NULL) {
    MPI_Request dropped = MPI_REQUEST_NULL;
    expect_equal(
        MPIX_Enqueue_send(buffer.data(), static_cast<int>(buffer.size()), MPI_INT, peer, tag, comm, queue, &dropped),
        MPI_SUCCESS, "a send");
  }
  void receive(std::vector<int>& buffer, int peer, int tag = 0, MPI_Comm comm = MPI_COMM_NULL) {
    MPI_Request dropped = MPI_REQUEST_NULL;
    expect_equal(
        MPIX_Enqueue_recv(buffer.data(), static_cast<int>(buffer.size()), MPI_INT, peer, tag, comm, queue, &dropped),
        MPI_SUCCESS, "a receive");
  }
  void start() { expect_equal(MPIX_Enqueue_start(queue), MPI_SUCCESS, "a start"); }
  void wait_on_stream() { expect_equal(MPIX_Enqueue_wait(queue), MPI_SUCCESS, "a wait of the stream"); }
  void start_and_wait() {
    start();
    wait_on_stream();
  }

  MPIX_Queue queue = nullptr;
};

}  // namespace stream_mpi_test
