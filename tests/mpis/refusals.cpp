// SPDX-License-Identifier: Apache-2.0
// Refused calls, and failures.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/mpis/order.hpp"
#include "tests/mpis/programs.hpp"

using namespace stream_mpi_test;

/// Each state that a function excludes; then the request works all the same.
void run_states() {
  const int peer = 1 - world_rank();
  int out = 3;
  int in = 0;
  std::vector<MPIS_Request> requests{receive_of(&in, 1, peer), send_of(&out, 1, peer)};
  expect_equal(MPIS_Match(requests.data(), MPI_STATUS_IGNORE), MPIS_INVALID_REQUEST_STATE, "a match without a queue");
  Order order;
  const auto start = [&] { return MPIS_Enqueue_start(order.queue, requests.data()); };
  expect_equal(start(), MPIS_INVALID_REQUEST_STATE, "a start before the match");
  expect_equal(MPIS_Wait(requests.data(), MPI_STATUS_IGNORE), MPIS_INVALID_REQUEST_STATE, "a wait for a message");
  expect(requests[0] != MPIS_REQUEST_NULL, "a request that was refused");
  match_all(requests);
  expect_equal(MPIS_Match(requests.data(), MPI_STATUS_IGNORE), MPIS_INVALID_REQUEST_STATE, "a second match");
  expect_equal(MPIS_Queue_match(order.queue, requests.data(), MPI_STATUS_IGNORE), MPIS_INVALID_REQUEST_STATE,
               "a second match on a queue");
  MPIS_Request fresh = receive_of(&in, 1, peer, 9);
  MPIS_Request match_of_fresh = MPIS_REQUEST_NULL;
  std::array<MPIS_Request, 2> second{fresh, requests[0]};
  expect_equal(MPIS_Matchall(2, second.data(), MPI_STATUSES_IGNORE), MPIS_INVALID_REQUEST_STATE, "one that is matched");
  expect_equal(MPIS_Imatch(&fresh, &match_of_fresh), MPIS_SUCCESS, "a match of the other one");
  expect_equal(MPIS_Imatch(&fresh, &match_of_fresh), MPIS_INVALID_REQUEST_STATE, "a second match that begins");
  expect_equal(MPIS_Request_free(&match_of_fresh), MPIS_SUCCESS, "the end of a match");
  expect_equal(MPIS_Request_free(&fresh), MPIS_SUCCESS, "the end of a request whose match has begun");
  std::array<MPIS_Request, 3> twice{requests[1], requests[0], requests[0]};
  expect_equal(MPIS_Enqueue_startall(order.queue, 3, twice.data()), MPIS_INVALID_REQUEST_STATE, "one twice");
  expect_equal(start(), MPIS_SUCCESS, "a start");
  expect_equal(start(), MPIS_INVALID_REQUEST_STATE, "a second start");
  order.start(requests[1]);
  order.wait_all();
  order.wait();
  expect_equal(in, 3, "a message after what was refused");
  order.start_all(requests);
  order.wait_all();
  order.wait();
  free_all(requests);
}

void run_arguments() {
  int value = 0;
  MPIS_Request request = MPIS_REQUEST_NULL;
  const auto send = [&](MPI_Count count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
    return MPIS_Send_init(&value, count, type, peer, tag, comm, MPI_INFO_NULL, &request);
  };
  const auto receive = [&](int peer, int tag) {
    return MPIS_Recv_init(&value, 1, MPI_INT, peer, tag, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  };
  expect_equal(receive(MPI_ANY_SOURCE, 0), MPIS_UNSUPPORTED_BEHAVIOR, "any source");
  expect_equal(receive(0, MPI_ANY_TAG), MPIS_UNSUPPORTED_BEHAVIOR, "any tag");
  expect_equal(send(1, MPI_INT, world_size(), 0, MPI_COMM_WORLD), MPI_ERR_RANK, "a rank that does not exist");
  expect_equal(send(1, MPI_INT, 0, -5, MPI_COMM_WORLD), MPI_ERR_TAG, "a negative tag");
  expect_equal(send(-1, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_COUNT, "a negative count");
  expect_equal(send(MPI_Count{1} << 62, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_COUNT, "2^64 bytes");
  expect_equal(send(MPI_Count{1} << 61, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_COUNT, "2^63 bytes");
  expect_equal(send(1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD), MPI_ERR_TYPE, "a null datatype");
  expect_equal(send(1, MPI_INT, 0, 0, MPI_COMM_NULL), MPI_ERR_COMM, "a null communicator");
  expect_equal(MPIS_Send_init(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, nullptr), MPI_ERR_ARG,
               "no place for a request");
  expect_equal(MPIS_Barrier_init(MPI_COMM_NULL, MPI_INFO_NULL, &request), MPI_ERR_COMM, "a barrier of nobody");
  expect(request == MPIS_REQUEST_NULL, "a request that was not made");
  expect_equal(MPIS_Match(nullptr, MPI_STATUS_IGNORE) == MPIS_SUCCESS, false, "a match of no request");
  expect_equal(MPIS_Enqueue_waitall(4711), MPI_ERR_ARG, "a queue that does not exist");
  expect_equal(MPIS_Queue_init(nullptr, THREAD, nullptr), MPI_ERR_ARG, "no place for a queue");
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  expect_equal(MPIS_Queue_init(&queue, static_cast<MPIS_Queue_type>(1), nullptr), MPI_ERR_ARG, "an unknown type");
  expect_equal(MPIS_Queue_init(&queue, GPU_MEM_OPS, nullptr), MPI_ERR_ARG, "a GPU's queue without a stream");
  expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "the end of a null request");
}

/// Without GPUs, of which one might take the handle for a stream of its own.
void run_freed_stream() {
  sluice_host_stream* stream = nullptr;
  sluice_host_stream_create(nullptr, &stream);
  void* freed = stream;
  sluice_host_stream_free(&stream);
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  expect_equal(MPIS_Queue_init(&queue, THREAD, &freed), MPIS_UNSUPPORTED_BEHAVIOR, "a host stream that was freed");
}

/// Both ends learn that a message does not fit.
void run_sizes() {
  Order order;
  const int peer = 1 - world_rank();
  std::array<int, 4> values{1, 2, 3, 4};
  MPIS_Request request = world_rank() == 0 ? send_of(values.data(), 4, peer) : receive_of(values.data(), 3, peer);
  expect_equal(MPIS_Match(&request, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE, "a message that does not fit");
  expect_equal(MPIS_Enqueue_start(order.queue, &request), MPI_ERR_TRUNCATE, "a start after that");
  expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "its end");
}

/// With a short SLUICE_CONNECT_TIMEOUT: a match that the peer does not make can be tried again.
void run_timeout() {
  Order order;
  const int peer = 1 - world_rank();
  int value = world_rank();
  MPIS_Request request = world_rank() == 0 ? receive_of(&value, 1, peer) : send_of(&value, 1, peer);
  if (world_rank() == 0)
    expect_equal(MPIS_Match(&request, MPI_STATUS_IGNORE), MPIS_NOT_READY, "a match that the peer does not make");
  MPI_Barrier(MPI_COMM_WORLD);
  while (MPIS_Match(&request, MPI_STATUS_IGNORE) == MPIS_NOT_READY) {
  }
  order.start(request);
  order.wait_all();
  order.wait();
  expect_equal(value, 1, "a message after a match that was tried again");
  expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "its end");
}

/// As before, for a match of two requests, of which one is matched when the other has timed out.
void run_timeout_of_one() {
  Order order;
  const int peer = 1 - world_rank();
  std::array<int, 2> values{world_rank(), world_rank() + 10};
  std::vector<MPIS_Request> requests(2);
  const auto match_until_ready = [](int count, MPIS_Request* some) {
    int code = MPIS_NOT_READY;
    while (code == MPIS_NOT_READY) code = MPIS_Matchall(count, some, MPI_STATUSES_IGNORE);
    expect_equal(code, MPIS_SUCCESS, "a match that was tried again");
  };
  if (world_rank() == 0) {
    for (int i : {0, 1})
      requests[static_cast<std::size_t>(i)] = receive_of(&values.at(static_cast<std::size_t>(i)), 1, peer, i);
    int matched = 0;
    while (matched == 0) {
      expect_equal(MPIS_Matchall(2, requests.data(), MPI_STATUSES_IGNORE), MPIS_NOT_READY, "a match of one in two");
      MPIS_Is_matched(requests.data(), &matched);
    }
  } else {
    requests[0] = send_of(values.data(), 1, peer, 0);
    match_until_ready(1, requests.data());
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) {
    requests[1] = send_of(&values[1], 1, peer, 1);
    match_until_ready(1, &requests[1]);
  } else {
    match_until_ready(2, requests.data());
    expect_equal(MPIS_Match(requests.data(), MPI_STATUS_IGNORE), MPIS_INVALID_REQUEST_STATE, "a match behind it");
  }
  order.start_all(requests);
  order.wait_all();
  order.wait();
  expect(values[0] == 1 && values[1] == 11, "messages after a match that was tried again");
  free_all(requests);
}

/// With a short SLUICE_TIMEOUT: of two sends that no receive has taken in time none is taken later, in the place of
/// those of the next step.
void run_timeout_of_sends() {
  Order order;
  const int peer = 1 - world_rank();
  std::array<int, 2> values{-7, -7};
  std::vector<MPIS_Request> requests;
  for (std::size_t i : {0U, 1U})
    requests.push_back(world_rank() == 0 ? send_of(&values.at(i), 1, peer, static_cast<int>(i))
                                         : receive_of(&values.at(i), 1, peer, static_cast<int>(i)));
  match_all(requests);
  const auto step = [&] {
    order.start_all(requests);
    order.wait_all();
    return MPIS_Queue_wait(order.queue);
  };
  if (world_rank() == 0) expect_equal(step(), MPI_ERR_OTHER, "sends that nobody receives");
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) values = {42, 43};
  expect_equal(step(), MPI_ERR_OTHER, "messages whose sends have timed out");
  if (world_rank() == 1) expect(values[0] == -7 && values[1] == -7, "a message of another step");
  free_all(requests);
}

/// A stream that waits for a message of a rank that dies.
void run_killed() {
  int value = 0;
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Queue_init(&queue, THREAD, nullptr);
  std::vector<MPIS_Request> requests{receive_of(&value, 1, 1 - world_rank()), send_of(&value, 1, 1 - world_rank(), 1),
                                     receive_of(&value, 1, 1 - world_rank(), 1), send_of(&value, 1, 1 - world_rank())};
  match_all(requests);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) raise(SIGKILL);
  MPIS_Enqueue_startall(queue, 2, requests.data());
  MPIS_Enqueue_waitall(queue);
  const int met = MPIS_Queue_wait(queue);
  leave(met == MPI_ERR_OTHER && MPIS_Queue_wait(queue) == MPIS_SUCCESS);
}

/// A rank dies at an instant that is drawn, between messages or in one. MPIS_TEST_SEED takes a seed back.
void run_killed_any() {
  const char* const given = std::getenv("MPIS_TEST_SEED");
  const unsigned seed = given == nullptr ? std::random_device{}() : static_cast<unsigned>(std::atoi(given));
  std::vector<int> in(20000);
  std::vector<int> out(20000);
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Queue_init(&queue, THREAD, nullptr);
  const int peer = 1 - world_rank();
  std::vector<MPIS_Request> requests{receive_of(in.data(), 20000, peer), send_of(out.data(), 20000, peer),
                                     receive_of(in.data(), 1, peer, 1), send_of(out.data(), 1, peer, 1)};
  match_all(requests);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) {
    std::printf("MPIS_TEST_SEED=%u\n", seed);
    std::fflush(stdout);
    std::thread([seed] {
      std::this_thread::sleep_for(std::chrono::microseconds(std::mt19937(seed)() % 100000));
      raise(SIGKILL);
    }).detach();
  }
  int met = MPIS_SUCCESS;
  while (met == MPIS_SUCCESS) {
    MPIS_Enqueue_startall(queue, 4, requests.data());
    MPIS_Enqueue_waitall(queue);
    met = MPIS_Queue_wait(queue);
  }
  leave(met == MPI_ERR_OTHER);
}

/// A match with a rank that dies before it makes it.
void run_killed_early() {
  int value = 0;
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Queue_init(&queue, THREAD, nullptr);
  MPIS_Request request = receive_of(&value, 1, 1 - world_rank());
  // MPICH's launcher dies of a rank that dies while it connects to another.
  for (const int tag : {1, 2})
    MPI_Sendrecv_replace(&value, 1, MPI_INT, 1 - world_rank(), tag, 1 - world_rank(), tag, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) raise(SIGKILL);
  leave(MPIS_Match(&request, MPI_STATUS_IGNORE) == MPI_ERR_OTHER);
}

/// A peer frees its request; a wait for the message that it does not send ends.
void run_freed_early() {
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Queue_init(&queue, THREAD, nullptr);
  int value = 0;
  MPIS_Request request = world_rank() == 0 ? receive_of(&value, 1, 1) : send_of(&value, 1, 0);
  match(request);
  if (world_rank() == 0) {
    MPIS_Enqueue_start(queue, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPIS_Enqueue_waitall(queue);
    expect_equal(MPIS_Queue_wait(queue), MPI_ERR_OTHER, "a message whose send was freed");
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
  }
  expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "the end of a request");
  if (world_rank() != 0) MPI_Barrier(MPI_COMM_WORLD);
  expect_equal(MPIS_Queue_free(&queue), MPIS_SUCCESS, "the end of a queue");
}

/// The receiver frees its request as soon as it has the message, before the sender's stream reaches its wait. On a
/// host stream of the program's.
void run_freed_by_receiver() {
  Order order;
  int value = 4;
  MPIS_Request request = world_rank() == 0 ? send_of(&value, 1, 1) : receive_of(&value, 1, 0);
  match(request);
  std::atomic<bool> freed = false;
  if (world_rank() == 1) {
    order.start(request);
    order.wait();
    MPI_Barrier(MPI_COMM_WORLD);
    order.wait_all();
    order.wait();
    expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "the end of a receive");
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  order.start(request);
  order.run([&freed] { freed.wait(false); });
  order.wait_all();
  MPI_Barrier(MPI_COMM_WORLD);
  freed = true;
  freed.notify_one();
  order.wait();
  expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "the end of a send");
}

/// A program that ends MPI with a queue, a matched request, one whose match has begun, and memory.
void run_not_freed_ones() {
  static int out = 0;
  static int in = 0;
  MPIS_Queue queue = MPIS_QUEUE_NULL;
  MPIS_Queue_init(&queue, THREAD, nullptr);
  std::vector<MPIS_Request> requests{receive_of(&in, 1, 1 - world_rank()), send_of(&out, 1, 1 - world_rank())};
  match_all(requests);
  out = 6;
  MPIS_Enqueue_startall(queue, 2, requests.data());
  MPIS_Enqueue_waitall(queue);
  MPIS_Request waiting = receive_of(&in, 1, 1 - world_rank(), 9);
  MPIS_Request match = MPIS_REQUEST_NULL;
  expect_equal(MPIS_Imatch(&waiting, &match), MPIS_SUCCESS, "the beginning of a match");
}
