// SPDX-License-Identifier: Apache-2.0
// MPI Advance's queues on streams of the emulated GPU, with the library's own sources: late peers and failures.
#ifdef WITH_CUDA
#include <array>
#include <atomic>

#include "tests/await_answer.hpp"
#include "tests/mpis/beside_mpi.hpp"
#include "tests/mpis/order.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

void run_gpu_beside_mpi() { advance_beside_mpi(); }

/// With a short SLUICE_TIMEOUT: a receive that has failed keeps none behind it from starting.
void run_gpu_start_fails() {
  Order order;
  const int peer = 1 - world_rank();
  std::array<int, 2> values{world_rank() == 1 ? 5 : -7, world_rank() == 1 ? 6 : -7};
  std::vector<MPIS_Request> requests;
  for (std::size_t i : {0U, 1U})
    requests.push_back(world_rank() == 1 ? send_of(&values.at(i), 1, peer, static_cast<int>(i))
                                         : receive_of(&values.at(i), 1, peer, static_cast<int>(i)));
  match_all(requests);
  if (world_rank() == 0) {
    order.start(requests[0]);
    order.wait_all();
    expect_equal(MPIS_Queue_wait(order.queue), MPI_ERR_OTHER, "a message that nobody sends");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0)
    order.start_all(requests);
  else
    order.start(requests[1]);
  order.wait_all();
  const int met = MPIS_Queue_wait(order.queue);
  if (world_rank() == 0) {
    expect_equal(met, MPI_ERR_OTHER, "a start of a receive that has failed");
    expect_equal(values[1], 6, "a message behind one that has failed");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  free_all(requests);
}

/// With a short SLUICE_TIMEOUT: a match that fails returns its own failure, and the queue an older one of a message.
void run_gpu_two_failures() {
  Order order;
  const int peer = 1 - world_rank();
  std::array<int, 2> values{};
  MPIS_Request late = world_rank() == 1 ? send_of(values.data(), 1, peer) : receive_of(values.data(), 1, peer);
  match(late);
  if (world_rank() == 0) {
    order.start(late);
    order.wait_all();
    order.stream->wait();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPIS_Request other = world_rank() == 1 ? send_of(values.data(), 2, peer, 1) : receive_of(values.data(), 1, peer, 1);
  expect_equal(MPIS_Match(&other, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE, "a message that does not fit");
  const int met = MPIS_Queue_wait(order.queue);
  if (world_rank() == 0) expect_equal(met, MPI_ERR_OTHER, "a message that nobody sends");
  MPI_Barrier(MPI_COMM_WORLD);
  for (MPIS_Request* const request : {&late, &other})
    expect_equal(MPIS_Request_free(request), MPIS_SUCCESS, "the end of a request");
}

/// Requests that are freed between start and wait do not hold up the host while the stream is.
void run_gpu_freed_started() {
  Order order;
  int in = -7;
  int out = 41;
  std::vector<MPIS_Request> requests{receive_of(&in, 1, world_rank()), send_of(&out, 1, world_rank())};
  match_all(requests);
  std::atomic<bool> open = false;
  order.run([&open] { open.wait(false); });
  order.start_all(requests);
  const double began = MPI_Wtime();
  free_all(requests);
  order.wait_all();
  expect(MPI_Wtime() - began < 5, "a wait of the stream for requests that were freed");
  open = true;
  open.notify_all();
  order.wait();
  expect_equal(in, 41, "a message of requests that were freed");
}

/// The receive has started before the send, whose rank then waits by MPI for an answer.
void run_gpu_answered() {
  const std::size_t before = threads_of_streams().size();
  Order order;
  const int peer = 1 - world_rank();
  std::vector<int> buffer = poisoned(1000);
  std::vector<MPIS_Request> requests{world_rank() == 0 ? send_of(buffer.data(), 1000, peer)
                                                       : receive_of(buffer.data(), 1000, peer)};
  match_all(requests);
  for (int step = 0; step < 3; ++step) {
    if (world_rank() == 0) {
      fill(buffer, 0, step);
      await_answer(peer);
    }
    order.start_all(requests);
    if (world_rank() == 1) {
      order.wait();  // until the stream has run the start
      tell(peer);
      order.wait_all();
      order.wait();
      expect_filled(buffer, 0, step, "a message that its sender does not wait for");
      tell(peer);
      continue;
    }
    await_answer(peer);
    order.wait_all();
    order.wait();
  }
  expect(threads_of_streams().size() == before, "a send whose receive has started is left to the background");
  free_all(requests);
}

/// Two sends are waited for together, and the receive of the second one starts first. Rank 0 has started both sends by
/// then, but its stream has not come to the starts.
void run_gpu_overtaken() {
  Order order;
  const int peer = 1 - world_rank();
  std::array<int, 2> values{world_rank() == 0 ? 5 : -7, world_rank() == 0 ? 6 : -7};
  std::vector<MPIS_Request> requests;
  for (std::size_t i : {0U, 1U})
    requests.push_back(world_rank() == 0 ? send_of(&values.at(i), 1, peer, static_cast<int>(i))
                                         : receive_of(&values.at(i), 1, peer, static_cast<int>(i)));
  match_all(requests);
  if (world_rank() == 0) {
    Gate gate(order);
    order.start_all(requests);
    tell(peer);
    await_answer(peer);
    order.wait_all();
    gate.open();
    order.wait();
  } else {
    await_answer(peer);
    order.start(requests[1]);
    order.wait();  // until the stream has run the start
    tell(peer);
    order.wait_all();
    order.wait();
    expect_equal(values[1], 6, "a message behind one whose receiver is late");
    expect_equal(values[0], -7, "a message whose receive has not started");
    order.start(requests[0]);
    order.wait_all();
    order.wait();
  }
  expect_equal(values[0], 5, "a message whose receiver is late");
  free_all(requests);
}

/// A queue of the GPU's beside one of the host's. Each request stays with the kind of queue of its match.
void run_gpu_and_host() {
  constexpr int kInts = 100;
  Order gpu;
  MPIS_Queue host = MPIS_QUEUE_NULL;
  expect_equal(MPIS_Queue_init(&host, THREAD, nullptr), MPIS_SUCCESS, "a queue of the host");
  const int peer = 1 - world_rank();
  struct Message {
    MPIS_Queue queue;
    MPIS_Queue other;
    std::vector<int> out = poisoned(kInts);
    std::vector<int> in = poisoned(kInts);
    std::vector<MPIS_Request> requests{};
  };
  std::array<Message, 2> both{Message{host, gpu.queue}, Message{gpu.queue, host}};
  for (int tag : {0, 1}) {
    Message& one = both.at(static_cast<std::size_t>(tag));
    one.requests = {receive_of(one.in.data(), kInts, peer, tag), send_of(one.out.data(), kInts, peer, tag)};
    if (world_rank() == 1) std::swap(one.requests[0], one.requests[1]);  // ranks match in one order
    for (MPIS_Request& request : one.requests) {
      expect_equal(MPIS_Queue_match(one.queue, &request, MPI_STATUS_IGNORE), MPIS_SUCCESS, "a match for a queue");
      expect_equal(MPIS_Enqueue_start(one.other, &request), MPIS_UNSUPPORTED_BEHAVIOR, "a start on another kind");
    }
  }
  for (int step = 0; step < 3; ++step) {
    for (Message& one : both) {
      fill(one.out, world_rank(), step);
      expect_equal(MPIS_Enqueue_startall(one.queue, 2, one.requests.data()), MPIS_SUCCESS, "a start of all");
    }
    for (const Message& one : both) {
      expect_equal(MPIS_Enqueue_waitall(one.queue), MPIS_SUCCESS, "a wait for all");
      expect_equal(MPIS_Queue_wait(one.queue), MPIS_SUCCESS, "a wait of the host");
      expect_filled(one.in, peer, step, "a message beside one of another kind of queue");
    }
  }
  for (Message& one : both) free_all(one.requests);
  expect_equal(MPIS_Queue_free(&host), MPIS_SUCCESS, "the end of a queue");
}

/// With a short SLUICE_CONNECT_TIMEOUT: a barrier is matched when its peer has matched it, so its start does not wait.
void run_gpu_late_barrier() {
  Order order;
  MPIS_Request barrier = MPIS_REQUEST_NULL;
  expect_equal(MPIS_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &barrier), MPIS_SUCCESS, "a barrier");
  if (world_rank() == 0)
    expect_equal(MPIS_Match(&barrier, MPI_STATUS_IGNORE), MPIS_NOT_READY, "a barrier that no peer has matched");
  MPI_Barrier(MPI_COMM_WORLD);
  int code = MPIS_NOT_READY;
  while (code == MPIS_NOT_READY) code = MPIS_Match(&barrier, MPI_STATUS_IGNORE);
  expect_equal(code, MPIS_SUCCESS, "a barrier that all have matched");
  order.start(barrier);
  order.wait_all();
  order.wait();
  expect_equal(MPIS_Request_free(&barrier), MPIS_SUCCESS, "the end of a barrier");
}
#endif
