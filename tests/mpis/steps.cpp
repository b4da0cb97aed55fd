// SPDX-License-Identifier: Apache-2.0
// The cost of a step for a host that waits for it, of starts behind others, and of what they leave.
#include <malloc.h>

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

/// Starts one request after another on a stream that does not move on, behind the starts of MPIS_TEST_MESSAGES others.
/// Inside `count_system_calls`.
void run_starts_behind() {
  const int before = std::atoi(std::getenv("MPIS_TEST_MESSAGES"));
  Order order;
  std::vector<MPIS_Request> requests;
  for (int i = 0; i < before + kCountedSteps; ++i) requests.push_back(send_of(nullptr, 0, MPI_PROC_NULL));
  match_all(requests);
  {
    const Gate gate(order);
    const auto start = [&](auto first, auto last) {
      for (; first != last; ++first) MPIS_Enqueue_start(order.queue, &*first);
    };
    start(requests.begin(), requests.begin() + before);
    sluice::test::begin_stepping();
    start(requests.begin() + before, requests.end());
    sluice::test::end_stepping();
    order.wait_all();
  }
  order.wait();
  free_all(requests);
}

namespace {

constexpr std::size_t kOfAList = 100;  // bytes at least

std::vector<MPIS_Request> sends_to_nobody() {
  std::vector<MPIS_Request> requests;
  for (int i = 0; i < 100; ++i) requests.push_back(send_of(nullptr, 0, MPI_PROC_NULL));
  match_all(requests);
  return requests;
}

void start_each(Order& order, std::vector<MPIS_Request>& requests) {
  for (MPIS_Request& request : requests) {
    order.start(request);
    order.wait_all();
  }
}

std::size_t used() { return mallinfo2().uordblks; }

/// Starts 10000 lists, and waits now and then until the stream has run their items.
void expect_nothing_left(Order& order, const std::string& what) {
  std::vector<MPIS_Request> requests = sends_to_nobody();
  const auto start_and_wait = [&] {
    start_each(order, requests);
    order.stream ? order.stream->wait() : order.wait();
  };
  start_and_wait();
  const std::size_t before = used();
  for (int i = 0; i < 100; ++i) start_and_wait();
  expect(used() < before + 2000 * kOfAList, what);
  order.wait();
  free_all(requests);
}

}  // namespace

/// Lists whose items have run take no memory.
void run_left_lists() {
  Order order;
  expect_nothing_left(order, "lists that were left");
}

/// Nor do they behind lists on a stream that stands still.
void run_left_lists_beside() {
  Order order;
  std::vector<MPIS_Request> requests = sends_to_nobody();
  OrderedStream other(false);
  {
    const Gate gate(order);
    start_each(order, requests);
    std::swap(order.stream->stream, other.stream);
    expect_nothing_left(order, "lists that were left behind others");
  }
  other.wait();
  free_all(requests);
}

/// Nor do they once the host has waited.
void run_left_lists_ahead() {
  Order order;
  std::vector<MPIS_Request> requests = sends_to_nobody();
  std::size_t ahead = 0;
  {
    const Gate gate(order);
    for (int i = 0; i < 20; ++i) start_each(order, requests);
    ahead = used();
  }
  order.wait();
  expect(used() + 1500 * kOfAList < ahead, "lists that were left when the host had waited");
  free_all(requests);
}
