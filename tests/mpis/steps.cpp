// SPDX-License-Identifier: Apache-2.0
// The cost of a step for a host that waits for it.
#include "tests/conformance/counting.hpp"
#include "tests/mpis/order.hpp"
#include "tests/mpis/programs.hpp"

using namespace stream_mpi_test;

/// MPIS_TEST_MESSAGES messages of 8 bytes of this rank to itself in each step. Inside `count_system_calls`.
void run_steps() {
  const auto count = static_cast<std::size_t>(std::atoi(std::getenv("MPIS_TEST_MESSAGES")));
  Order order;
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_memory_alloc_kinds", "system");
  void* memory = nullptr;
  MPIS_Alloc_mem(static_cast<MPI_Aint>(count * 4 * sizeof(int)), info, &memory);
  MPI_Info_free(&info);
  int* const at = static_cast<int*>(memory);
  std::vector<MPIS_Request> requests;
  for (std::size_t i = 0; i < count; ++i) {
    requests.push_back(receive_of(at + 4 * i, 2, 0, static_cast<int>(i)));
    requests.push_back(send_of(at + 4 * i + 2, 2, 0, static_cast<int>(i)));
  }
  match_all(requests);
  const auto step = [&] {
    MPIS_Enqueue_startall(order.queue, static_cast<int>(requests.size()), requests.data());
    MPIS_Enqueue_waitall(order.queue);
    MPIS_Queue_wait(order.queue);
  };
  for (int i = 0; i < 100; ++i) step();
  sluice::test::begin_stepping();
  for (int i = 0; i < kCountedSteps; ++i) step();
  sluice::test::end_stepping();
  free_all(requests);
  MPIS_Free_mem(memory);
}
