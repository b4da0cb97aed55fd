// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <vector>

namespace bench {

/// Persistent requests, which are freed with this object.
class Requests {
 public:
  Requests() = default;
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests() {
    for (MPI_Request& request : requests_) MPI_Request_free(&request);
  }

  void add_send(const void* from, int count, MPI_Datatype type, int rank, int tag, MPI_Comm communicator) {
    MPI_Send_init(from, count, type, rank, tag, communicator, &requests_.emplace_back());
  }
  void add_receive(void* into, int count, MPI_Datatype type, int rank, int tag, MPI_Comm communicator) {
    MPI_Recv_init(into, count, type, rank, tag, communicator, &requests_.emplace_back());
  }
  void run() {
    start();
    wait();
  }
  void start() { MPI_Startall(static_cast<int>(requests_.size()), requests_.data()); }
  void wait() { MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE); }

 private:
  std::vector<MPI_Request> requests_;
};

}  // namespace bench
