// SPDX-License-Identifier: Apache-2.0
// Calls that Cray's dialect refuses, and failures.
#include <dlfcn.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>

#include "tests/mpix/cray_queue.hpp"
#include "tests/mpix/programs.hpp"

using namespace stream_mpi_test;

namespace {

/// A queue that ends with an error.
int code_of_end(CrayQueue& queue) {
  const int code = MPIX_Free_queue(queue.queue);
  expect_equal(MPIX_Create_queue(queue.handle_of_stream(), &queue.queue), MPI_SUCCESS, "a queue in its place");
  return code;
}

bool g_broadcasts_fail = false;

}  // namespace

extern "C" int PMPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  using Function = int(void*, int, MPI_Datatype, int, MPI_Comm);
  static auto* const next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "PMPI_Bcast"));
  if (!g_broadcasts_fail || type != MPI_UINT64_T || count != 1) return next(buffer, count, type, root, comm);
  std::uint64_t lost = 0;  // the number of a communicator
  next(&lost, count, type, root, comm);
  return MPI_ERR_OTHER;
}

/// Calls on a communicator whose number did not reach this rank are refused.
void run_cray_unnumbered() {
  CrayQueue queue;
  int value = 0;
  MPI_Comm copy = MPI_COMM_NULL;
  g_broadcasts_fail = world_rank() == 1;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  if (std::exchange(g_broadcasts_fail, false))
    expect_equal(MPIX_Enqueue_send(&value, 1, MPI_INT, 0, 0, copy, queue.queue, nullptr), MPI_ERR_UNSUPPORTED_OPERATION,
                 "a communicator without a number");
  MPI_Comm_free(&copy);
}

void run_cray_arguments() {
  CrayQueue queue;
  int value = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto send = [&](int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
    return MPIX_Enqueue_send(&value, count, type, peer, tag, comm, queue.queue, &request);
  };
  const auto receive = [&](int peer, int tag) {
    return MPIX_Enqueue_recv(&value, 1, MPI_INT, peer, tag, queue.queue, &request);
  };
  expect_equal(receive(MPI_ANY_SOURCE, 0), MPI_ERR_UNSUPPORTED_OPERATION, "any source");
  expect_equal(receive(0, MPI_ANY_TAG), MPI_ERR_UNSUPPORTED_OPERATION, "any tag");
  expect_equal(send(1, MPI_INT, world_size(), 0, MPI_COMM_WORLD), MPI_ERR_RANK, "a rank that does not exist");
  expect_equal(send(1, MPI_INT, 0, -5, MPI_COMM_WORLD), MPI_ERR_TAG, "a negative tag");
  expect_equal(send(-1, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_COUNT, "a negative count");
  expect_equal(send(1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD), MPI_ERR_TYPE, "a null datatype");
  MPI_Comm idle = MPI_COMM_NULL;
  MPI_Request made = MPI_REQUEST_NULL;
  MPI_Comm_idup(MPI_COMM_WORLD, &idle, &made);
  MPI_Wait(&made, MPI_STATUS_IGNORE);
  expect_equal(send(1, MPI_INT, 0, 0, idle), MPI_ERR_UNSUPPORTED_OPERATION, "a communicator without a number");
  MPI_Comm_free(&idle);
  expect(request == MPI_REQUEST_NULL, "a request that was not made");
  queue.start_and_wait();
  queue.wait();

  MPIX_Queue other = nullptr;
  expect_equal(MPIX_Create_queue(queue.handle_of_stream(), nullptr), MPI_ERR_ARG, "no place for a queue");
  expect_equal(MPIX_Create_queue(nullptr, &other), MPI_ERR_ARG, "no stream");
  expect_equal(MPIX_Create_queue(MPI_COMM_NULL, queue.handle_of_stream(), &other), MPI_ERR_COMM, "nobody's queue");
  expect(other == nullptr, "a queue that was not made");
  expect_equal(MPIX_Enqueue_start(other), MPI_ERR_ARG, "a null queue");
  MPIX_Create_queue(queue.handle_of_stream(), &other);
  expect_equal(MPIX_Free_queue(other), MPI_SUCCESS, "the end of a queue");
  expect_equal(MPIX_Enqueue_wait(other), MPI_ERR_ARG, "a queue that was freed");
}

/// The rest of a message that is too long is dropped, and the next one arrives.
void run_cray_truncation() {
  CrayQueue queue;
  std::vector<int> out = poisoned(50000);
  std::vector<int> in = poisoned(10000);
  std::vector<int> behind = poisoned(50000);
  fill(out, world_rank(), 1);
  in.push_back(-9);
  MPI_Request request = MPI_REQUEST_NULL;
  queue.send(out, next_rank());
  queue.send(out, next_rank());
  MPIX_Enqueue_recv(in.data(), 10000, MPI_INT, rank_before(), 0, queue.queue, &request);
  queue.receive(behind, rank_before());
  queue.start_and_wait();
  expect_equal(code_of_end(queue), MPI_ERR_TRUNCATE, "a message that does not fit");
  expect_equal(in.back(), -9, "what lies behind the buffer");
  in.pop_back();
  expect_filled(in, rank_before(), 1, "the part that fits");
  expect_filled(behind, rank_before(), 1, "the message behind one that does not fit");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_Wait(&request, MPI_STATUS_IGNORE), &error_class);
  expect_equal(error_class, MPI_ERR_TRUNCATE, "the request of a message that does not fit");
}

/// With a short SLUICE_TIMEOUT: a message that is never sent; then its buffer is the program's.
void run_cray_timeout() {
  CrayQueue queue;
  std::vector<int> in = poisoned(1);
  std::vector<int> out{1};
  if (world_rank() == 0) {
    queue.receive(in, 1);
    queue.start_and_wait();
    expect_equal(code_of_end(queue), MPI_ERR_OTHER, "a message that nobody sends");
    queue.receive(in, 1);
    queue.start_and_wait();
    expect_equal(code_of_end(queue), MPI_ERR_OTHER, "a message behind it");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) {
    queue.send(out, 0);
    queue.start_and_wait();
    queue.wait();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<int> other = poisoned(1);
  if (world_rank() == 0) queue.receive(other, 1, 1);
  if (world_rank() == 1) queue.send(out, 0, 1);
  queue.start_and_wait();
  queue.wait();
  expect_equal(other[0], world_rank() == 0 ? 1 : -7, "a message with another tag");
  expect_equal(in[0], -7, "the buffer of a wait that has ended");
}

/// A stream that has stopped drops the start of a message, which fails in place of being waited for.
void run_cray_stopped() {
  CrayQueue queue;
  std::vector<int> in = poisoned(1);
  queue.receive(in, world_rank());
  sluice_host_stream_run(
      queue.stream, [](void*) { return 1; }, nullptr);
  queue.start_and_wait();
  expect(sluice_host_stream_synchronize(queue.stream, SLUICE_FOREVER) != SLUICE_OK, "a stream that has stopped");
  expect_equal(code_of_end(queue), MPI_ERR_OTHER, "a message that a stream has dropped");
  queue.send(in, world_rank(), 1);
  queue.receive(in, world_rank(), 1);
  queue.start_and_wait();
  queue.wait();
}

/// The stream of rank 0 stops before the start of a message, or behind it: the program learns it from the request, the
/// peer from its own wait, and no bytes land any more.
void run_cray_dropped() {
  constexpr int kCrayInts = 100000;  // more than a lane holds
  const int peer = 1 - world_rank();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const auto stop = [](void*) { return 1; };
  for (const int tag : {0, 1, 2, 3}) {
    const bool receives = (tag % 2 == 0) == (world_rank() == 0);
    const bool started = tag < 2;
    CrayQueue queue;
    CrayQueue other;
    std::vector<int> buffer = poisoned(kCrayInts);
    MPI_Request request = MPI_REQUEST_NULL;
    if (receives)
      MPIX_Enqueue_recv(buffer.data(), kCrayInts, MPI_INT, peer, tag, queue.queue, &request);
    else
      MPIX_Enqueue_send(buffer.data(), kCrayInts, MPI_INT, peer, tag, queue.queue, &request);
    if (world_rank() == 0 && !started) sluice_host_stream_run(queue.stream, stop, nullptr);
    const bool later = world_rank() != 0 && started;  // else it could complete before the stop
    if (!later) queue.start();
    if (world_rank() == 0) {
      if (started) {
        sluice_host_stream_run(queue.stream, stop, nullptr);
        queue.wait_on_stream();
      }
      expect(sluice_host_stream_synchronize(queue.stream, SLUICE_FOREVER) != SLUICE_OK, "a stream that has stopped");
      int complete = request == MPI_REQUEST_NULL ? 1 : 0;
      if (complete == 0) MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
      expect_equal(complete, 1, "the request of a message that a stream has dropped");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank() != 0) {
      for (int& value : buffer) value = receives ? value : 5;
      if (later) queue.start();
      queue.wait_on_stream();
    }
    std::vector<int> sent{world_rank()};
    std::vector<int> received = poisoned(1);
    other.send(sent, peer, 10 + tag);
    other.receive(received, peer, 10 + tag);
    other.start_and_wait();
    other.wait();
    expect_equal(received[0], peer, "a message of another queue");
    expect_equal(code_of_end(queue), MPI_ERR_OTHER, "a message that one of its streams has dropped");
    MPI_Barrier(MPI_COMM_WORLD);
    if (receives && world_rank() == 0) expect(buffer == poisoned(kCrayInts), "a buffer that was given up");
  }
}

/// One thread waits for a message in MPI, which calls the library back, while another one uses tags for the first time.
void run_cray_threads() {
  CrayQueue waiting;
  CrayQueue opening;
  CrayQueue last;
  std::vector<int> in = poisoned(1);
  const std::vector<int> out{5};
  MPI_Request request = MPI_REQUEST_NULL;
  MPIX_Enqueue_recv(in.data(), 1, MPI_INT, world_rank(), 999, waiting.queue, &request);
  waiting.start();
  std::thread waits([&request] { MPI_Wait(&request, MPI_STATUS_IGNORE); });
  for (int tag = 0; tag < 300; ++tag) opening.send(out, world_rank(), tag);
  last.send(out, world_rank(), 999);
  last.start_and_wait();
  waits.join();
  waiting.wait();
  last.wait();
}

/// A rank dies at an instant that is drawn, between messages or in one. MPIX_TEST_SEED takes a seed back.
void run_cray_killed_any() {
  const char* const given = std::getenv("MPIX_TEST_SEED");
  const unsigned seed = given == nullptr ? std::random_device{}() : static_cast<unsigned>(std::atoi(given));
  CrayQueue queue;
  std::vector<int> in = poisoned(20000);
  std::vector<int> out = poisoned(20000);
  const auto step = [&] {
    queue.send(out, next_rank());
    queue.receive(in, rank_before());
    queue.start_and_wait();
  };
  step();
  queue.wait();
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) {
    std::printf("MPIX_TEST_SEED=%u\n", seed);
    std::fflush(stdout);
    std::thread([seed] {
      std::this_thread::sleep_for(std::chrono::microseconds(std::mt19937(seed)() % 100000));
      raise(SIGKILL);
    }).detach();
  }
  int met = MPI_SUCCESS;
  while (met == MPI_SUCCESS) {
    for (int i = 0; i < 10; ++i) step();
    met = code_of_end(queue);
  }
  leave(met == MPI_ERR_OTHER);
}

/// A stream that waits for a message of a rank that has died before any was exchanged.
void run_cray_killed_early() {
  CrayQueue queue;
  std::vector<int> in = poisoned(1);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) raise(SIGKILL);
  queue.receive(in, 1);
  queue.start_and_wait();
  const int met = code_of_end(queue);
  queue.send(in, 1, 5);
  queue.start_and_wait();
  leave(met == MPI_ERR_OTHER && code_of_end(queue) == MPI_ERR_OTHER);
}

/// A stream that waits for a message of a rank that dies, on a lane in use, and then on another.
void run_cray_killed() {
  CrayQueue queue;
  std::vector<int> in = poisoned(1);
  std::vector<int> out{1};
  queue.send(out, next_rank());
  queue.receive(in, rank_before());
  queue.start_and_wait();
  queue.wait();
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) raise(SIGKILL);
  queue.receive(in, 1);
  queue.start_and_wait();
  const int met = code_of_end(queue);
  queue.receive(in, 1, 5);
  queue.start_and_wait();
  leave(met == MPI_ERR_OTHER && code_of_end(queue) == MPI_ERR_OTHER);
}
