// SPDX-License-Identifier: Apache-2.0
// Several queues and communicators.
#include "tests/kernel_copies.hpp"
#include "tests/mpis/order.hpp"
#include "tests/mpis/programs.hpp"

using namespace stream_mpi_test;

namespace {

void exchange(Order& order, int tag, MPI_Comm comm = MPI_COMM_WORLD) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  std::vector<int> out(9);
  std::vector<int> in(9, -7);
  std::vector<MPIS_Request> requests{receive_of(in.data(), 9, (rank + size - 1) % size, tag, comm),
                                     send_of(out.data(), 9, (rank + 1) % size, tag, comm)};
  match_all(requests);
  for (int step = 0; step < 5; ++step) {
    order.run([&out, rank, tag, step] { fill(out, rank + tag, step); });
    order.start_all(requests);
    order.wait_all();
  }
  order.wait();
  expect_filled(in, (rank + size - 1) % size + tag, 4, "a message on one of several queues or communicators");
  free_all(requests);
}

}  // namespace

/// Matches that have begun go on when no queue is left, beside a request that has not.
void run_queueless() {
  const int peer = next_rank();
  const int before = rank_before();
  int in = -7;
  int out = world_rank();
  std::vector<MPIS_Request> requests{receive_of(&in, 1, before, 8), send_of(&out, 1, peer, 8),
                                     receive_of(&in, 1, before, 9)};
  std::vector<MPIS_Request> matches(2);
  {
    Order order;
    for (std::size_t i : {0U, 1U})
      expect_equal(MPIS_Imatch(&requests[i], &matches[i]), MPIS_SUCCESS, "a match that begins");
  }
  expect_equal(MPIS_Waitall(2, matches.data(), MPI_STATUSES_IGNORE), MPIS_SUCCESS, "a wait without a queue");
  free_all(requests);
}

/// One rank does not wait for its queue, but for an answer of the other by MPI.
void run_alone() {
  constexpr int kMpisAnswer = 3;  // no tag of a request, which a match uses
  Order order;
  const int peer = 1 - world_rank();
  const int out = 41;
  int in = -7;
  int answer = 0;
  const bool sends = world_rank() == 0;
  std::vector<MPIS_Request> requests{sends ? send_of(&out, 1, peer) : receive_of(&in, 1, peer)};
  match_all(requests);
  for (int step = 0; step < 5; ++step) {
    in = -7;
    order.start_all(requests);
    order.wait_all();
    if (sends) {
      MPI_Recv(&answer, 1, MPI_INT, peer, kMpisAnswer, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      continue;
    }
    order.wait();
    expect_equal(in, 41, "a message of a rank that does not wait");
    MPI_Send(&in, 1, MPI_INT, peer, kMpisAnswer, MPI_COMM_WORLD);
  }
  order.wait();
  free_all(requests);
}

/// Rank 1 sends what it receives, from the same buffer, and enqueues both before the message leaves.
void run_forward() {
  Order order;
  int value = world_rank() == 0 ? 41 : -7;
  int back = -7;
  const int peer = 1 - world_rank();
  std::vector<MPIS_Request> requests{receive_of(world_rank() == 0 ? &back : &value, 1, peer), send_of(&value, 1, peer)};
  match_all(requests);
  order.start(requests[0]);
  MPI_Barrier(MPI_COMM_WORLD);  // the buffer of the answer is ready
  if (world_rank() == 1) {
    order.wait_all();
    order.start(requests[1]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) order.start(requests[1]);
  order.wait_all();
  order.wait();
  if (world_rank() == 0) expect_equal(back, 41, "a message that was sent on");
  free_all(requests);
}

namespace {

/// Two ranks' requests: a receive and a send.
struct Pair {
  Pair() { match_all(requests); }

  int in = -7;
  int out = world_rank() + 41;
  std::vector<MPIS_Request> requests{receive_of(&in, 1, rank_before()), send_of(&out, 1, next_rank())};
};

/// The peers of requests that a rank has freed learn it when they start theirs again, and close them at once.
void expect_given_up(std::vector<MPIS_Request>& requests) {
  Order order;
  order.start_all(requests);
  order.wait_all();
  expect_equal(MPIS_Queue_wait(order.queue), MPI_ERR_OTHER, "messages of a peer that has freed its requests");
  const double began = MPI_Wtime();
  free_all(requests);
  expect(MPI_Wtime() - began < 5, "the end of a request whose peer has freed its");
}

}  // namespace

/// Rank 0 frees them between their start and the wait for them, in which they are together, unlike in the starts.
void run_freed_started() {
  Order order;
  Pair pair;
  for (MPIS_Request& request : pair.requests) order.start(request);
  if (world_rank() == 0) free_all(pair.requests);
  order.wait_all();
  order.wait();
  expect_equal(pair.in, rank_before() + 41, "a message of requests that were freed before the wait");
  if (world_rank() != 0) expect_given_up(pair.requests);
  MPI_Barrier(MPI_COMM_WORLD);
}

/// As before; no rank waits by its queue, but for its stream. On a host stream of the program's.
void run_freed_and_streamed() {
  Order order;
  Pair pair;
  for (MPIS_Request& request : pair.requests) order.start(request);
  order.wait_all();
  if (world_rank() == 0) free_all(pair.requests);
  order.stream->wait();
  expect_equal(pair.in, rank_before() + 41, "a message of requests that were freed before they had completed");
  if (world_rank() != 0) expect_given_up(pair.requests);
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Requests are started and never waited for: rank 0 frees them before its queue, rank 1 behind it.
void run_freed_without_wait() {
  std::optional<Order> order(std::in_place);
  Pair pair;
  for (MPIS_Request& request : pair.requests) order->start(request);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) free_all(pair.requests);
  order.reset();
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() != 0) expect_given_up(pair.requests);
  MPI_Barrier(MPI_COMM_WORLD);
}

/// A callable of the program stops the stream: a wait returns, says so, and the stream can go on.
void run_stopped() {
  sluice_host_stream* stream = nullptr;
  expect_equal(sluice_host_stream_create(nullptr, &stream), SLUICE_OK, "a host stream");
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  expect_equal(MPIS_Queue_init(&queue, THREAD, static_cast<void*>(&stream)), MPIS_SUCCESS, "a queue");
  int value = 0;
  std::vector<MPIS_Request> requests{send_of(&value, 1, MPI_PROC_NULL)};
  match_all(requests);
  const auto step = [&] {
    expect_equal(MPIS_Enqueue_start(queue, &requests[0]), MPIS_SUCCESS, "a start");
    expect_equal(MPIS_Enqueue_waitall(queue), MPIS_SUCCESS, "a wait for all");
    return MPIS_Queue_wait(queue);
  };
  expect_equal(step(), MPIS_SUCCESS, "a step of a stream that runs");
  const auto fail = [](void* /*nothing*/) { return 1; };
  expect_equal(sluice_host_stream_run(stream, fail, nullptr), SLUICE_OK, "a callable that fails");
  expect_equal(step(), MPI_ERR_OTHER, "a step of a stream that has stopped");
  expect(sluice_host_stream_synchronize(stream, SLUICE_FOREVER) != SLUICE_OK, "a stream that has stopped");
  expect_equal(step(), MPIS_SUCCESS, "a step of a stream that runs again");
  free_all(requests);
  expect_equal(MPIS_Queue_free(&queue), MPIS_SUCCESS, "the end of a queue");
  sluice_host_stream_free(&stream);
}

/// A callable of one rank stops its stream before a start: the wait of its peer ends with an error, and no message of a
/// later step comes in the place of the one that was dropped. On a host stream of the program's.
void run_dropped() {
  for (const int drops : {0, 1}) {
    Order order;
    int value = world_rank() == 0 ? 41 : -7;
    MPIS_Request request = world_rank() == 0 ? send_of(&value, 1, 1) : receive_of(&value, 1, 0);
    match(request);
    if (world_rank() == drops) {
      sluice_host_stream_run(
          order.stream->stream, [](void*) { return 1; }, nullptr);
      order.start(request);
      order.wait_all();
      expect_equal(MPIS_Queue_wait(order.queue), MPI_ERR_OTHER, "a step that a stream has dropped");
      expect(sluice_host_stream_synchronize(order.stream->stream, SLUICE_FOREVER) != SLUICE_OK, "a stopped stream");
      if (world_rank() == 0) value = 42;
    }
    order.start(request);
    order.wait_all();
    expect_equal(MPIS_Queue_wait(order.queue), MPI_ERR_OTHER, "a message of a step that a peer has dropped");
    expect(value != 42 || world_rank() == 0, "a message of another step");
    expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "the end of a request");
  }
}

/// A queue is freed and made again; two are alive at once, with the waits of one between the starts of the other.
void run_queues() {
  for (int i = 0; i < 3; ++i) {
    Order order;
    exchange(order, i);
  }
  Order one;
  Order other;
  exchange(one, 1);
  exchange(other, 2);
  const int peer = next_rank();
  const int before = rank_before();
  std::vector<int> out{world_rank(), world_rank() + 100};
  std::vector<int> in{-7, -7};
  std::vector<MPIS_Request> requests{receive_of(&in[0], 1, before, 5), send_of(&out[0], 1, peer, 5),
                                     receive_of(&in[1], 1, before, 6), send_of(&out[1], 1, peer, 6)};
  match_all(requests);
  one.start(requests[0]);
  other.start(requests[2]);
  other.start(requests[3]);
  one.start(requests[1]);
  other.wait_all();
  one.wait_all();
  other.wait();
  one.wait();
  expect_equal(in[0], before, "a message of one queue");
  expect_equal(in[1], before + 100, "a message of another queue");
  free_all(requests);
}

/// Ranks in another order; two communicators with the same ranks, whose requests are matched in different orders.
void run_communicators() {
  Order order;
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank(), &reversed);
  exchange(order, 1, reversed);
  MPI_Comm same = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &same);
  const int peer = world_size() - 1 - world_rank();
  int out = world_rank();
  int out_same = world_rank() + 100;
  int in = -1;
  int in_same = -1;
  std::vector<MPIS_Request> requests{receive_of(&in, 1, peer, 3), receive_of(&in_same, 1, peer, 3, same),
                                     send_of(&out_same, 1, peer, 3, same), send_of(&out, 1, peer, 3)};
  match_all(requests);
  MPI_Comm_free(&same);
  MPI_Comm_free(&reversed);
  order.start_all(requests);
  order.wait_all();
  order.wait();
  expect_equal(in, peer, "a message of one communicator");
  expect_equal(in_same, peer + 100, "a message of a communicator with the same ranks");
  free_all(requests);
}

/// A host stream is recognised also where the kernel copies nothing between processes.
void run_without_kernel_copies() {
  if (!sluice::test::forbid_kernel_copies()) std::puts("SKIPPED-HERE: nothing can be forbidden");
  run_ring();
}

/// The functions that need no peer.
void run_names() {
  MPIS_Hello_world();
  MPIS_Queue queues[3] = {7, 7, 7};
  expect_equal(MPIS_Queue_init(&queues[0], THREAD, nullptr), MPIS_SUCCESS, "a queue");
  expect_equal(MPIS_Queue_init(&queues[1], THREAD, nullptr), MPIS_SUCCESS, "another queue");
  expect(queues[0] != MPIS_QUEUE_NULL && queues[0] != queues[1], "queues differ");
  expect_equal(MPIS_Enqueue_waitall(queues[0]), MPIS_SUCCESS, "a wait for nothing");
  expect_equal(MPIS_Queue_wait(queues[0]), MPIS_SUCCESS, "a wait of the host for nothing");
  MPIS_Queue const old = queues[0];
  for (int i : {0, 1}) expect_equal(MPIS_Queue_free(&queues[i]), MPIS_SUCCESS, "the end of a queue");
  expect_equal(MPIS_Queue_wait(old), MPI_ERR_ARG, "a queue that was freed");
  expect_equal(MPIS_Queue_free(&queues[0]), MPI_ERR_ARG, "a null queue");

  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  for (const char* kind : {"rocm:device:fine", "rocm:device:coarse", "rocm:device", "cuda:device", "system"}) {
    void* memory = nullptr;
    MPI_Info_set(info, "mpi_memory_alloc_kinds", kind);
    expect_equal(MPIS_Alloc_mem(100, info, &memory), MPIS_SUCCESS, kind);
    expect(memory != nullptr, "memory");
    expect_equal(MPIS_Free_mem(memory), MPIS_SUCCESS, "the end of memory");
    expect_equal(MPIS_Free_mem(memory), MPI_ERR_ARG, "memory that was freed");
  }
  void* memory = nullptr;
  expect_equal(MPIS_Alloc_mem(0, info, &memory), MPIS_SUCCESS, "memory without bytes");
  expect_equal(MPIS_Free_mem(memory), MPIS_SUCCESS, "the end of memory without bytes");
  expect_equal(MPIS_Alloc_mem(-1, info, &memory), MPI_ERR_ARG, "a negative size");
  expect_equal(MPIS_Alloc_mem(1, MPI_INFO_NULL, &memory), MPIS_UNSUPPORTED_BEHAVIOR, "memory of no kind");
  MPI_Info_set(info, "mpi_memory_alloc_kinds", "tape");
  expect_equal(MPIS_Alloc_mem(1, info, &memory), MPIS_UNSUPPORTED_BEHAVIOR, "memory of an unknown kind");
  expect_equal(MPIS_Free_mem(nullptr), MPIS_SUCCESS, "no memory");
  MPI_Info_free(&info);
}
