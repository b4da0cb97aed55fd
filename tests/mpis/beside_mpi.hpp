// SPDX-License-Identifier: Apache-2.0
// Work of two ranks while one of them is held up in MPI.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "tests/mpis/order.hpp"

namespace stream_mpi_test {

/// A message of MPI's that rank 0 has not received: MPI finds it whenever it looks for one.
class NotReceived {
 public:
  NotReceived() {
    if (world_rank() == 1) MPI_Send(&sent_, 1, MPI_INT, 0, kTag, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  NotReceived(const NotReceived&) = delete;
  NotReceived& operator=(const NotReceived&) = delete;
  ~NotReceived() {
    if (world_rank() == 0) MPI_Recv(&sent_, 1, MPI_INT, 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

 private:
  static constexpr int kTag = 99;
  int sent_ = 5;
};

/// Both ranks do `work`, rank 1 behind an MPI_Send that ends only if MPI makes progress in the work of rank 0.
template <class Work>
void beside_mpi(Work work) {
  std::vector<int> large(std::size_t{1} << 20, world_rank());
  MPI_Request receive = MPI_REQUEST_NULL;
  const int count = static_cast<int>(large.size());
  if (world_rank() == 1) MPI_Send(large.data(), count, MPI_INT, 0, 98, MPI_COMM_WORLD);
  if (world_rank() == 0) MPI_Irecv(large.data(), count, MPI_INT, 1, 98, MPI_COMM_WORLD, &receive);
  work();
  MPI_Wait(&receive, MPI_STATUS_IGNORE);
  expect(large.front() == 1 && large.back() == 1, "a message of MPI's");
}

/// MPI Advance's: matches, waits of the host and the end of a queue, while the peer is in a call of MPI that needs this
/// rank.
inline void advance_beside_mpi() {
  const NotReceived other;
  std::optional<Order> order(std::in_place);
  const int peer = 1 - world_rank();
  const bool first = world_rank() == 0;
  int out = -1;
  int in = -1;
  int sum = -1;
  std::vector<MPIS_Request> requests{first ? send_of(&out, 1, peer, 1) : receive_of(&in, 1, peer, 1),
                                     first ? receive_of(&in, 1, peer, 2) : send_of(&out, 1, peer, 2), nullptr};
  MPIS_Allreduce_init(&out, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]);
  for (MPIS_Request& request : requests) beside_mpi([&] { match(request); });
  const auto start_all = [&](int value) {
    out = value + world_rank();
    order->start_all(requests);
    order->wait_all();
  };
  const auto check = [&](int value) {
    expect_equal(in, value + peer, "a message beside MPI");
    expect_equal(sum, 2 * value + 1, "a sum beside MPI");
  };
  beside_mpi([&] {
    start_all(10);
    order->wait();
    check(10);
  });
  for (MPIS_Request& request : requests)
    beside_mpi([&] {
      order->start(request);
      order->wait_all();
      order->wait();
    });
  beside_mpi([&] {
    start_all(20);
    order.reset();
    check(20);
  });
  free_all(requests);
}

}  // namespace stream_mpi_test
