// SPDX-License-Identifier: Apache-2.0
// A queue of MPI Advance's on a stream of each kind, and work in the order of that stream.
#pragma once

#include <sluice/dialects/mpis.h>

#include <functional>
#include <string>

#include "tests/mpi_rma/checks.hpp"

#ifdef WITH_CUDA
#include <cuda.h>
#endif

namespace mpis_test {

using checks::expect;
using checks::expect_equal;

/// `own`: of the library; `host`: a host stream of the program; `cuda`: of the emulated GPU.
inline std::string stream_kind() {
  const char* const set = std::getenv("MPIS_TEST_STREAM");
  return set == nullptr ? "own" : set;
}

class Order {
 public:
  Order() {
    void* variable = nullptr;
    MPIS_Queue_type type = THREAD;
    if (stream_kind() == "host") {
      expect_equal(sluice_host_stream_create(nullptr, &host_), SLUICE_OK, "a host stream");
      variable = static_cast<void*>(&host_);
    }
#ifdef WITH_CUDA
    if (stream_kind() == "cuda") {
      CUcontext context = nullptr;
      cuInit(0);
      cuDevicePrimaryCtxRetain(&context, 0);
      cuCtxSetCurrent(context);
      expect(cuStreamCreate(&cuda, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "a stream of the GPU");
      variable = static_cast<void*>(&cuda);
      type = GPU_MEM_OPS;
    }
#endif
    expect_equal(MPIS_Queue_init(&queue, type, variable), MPIS_SUCCESS, "a queue");
  }
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;
  ~Order() {
    expect_equal(MPIS_Queue_free(&queue), MPIS_SUCCESS, "the end of a queue");
    expect(queue == MPIS_QUEUE_NULL, "a freed queue is null");
    if (host_ != nullptr) sluice_host_stream_free(&host_);
#ifdef WITH_CUDA
    if (cuda != nullptr) cuStreamDestroy(cuda);
#endif
  }

  /// Behind all that is enqueued.
  void run(std::function<void()> work) {
    if (host_ != nullptr) {
      sluice_host_stream_run(host_, &call_in_c, new std::function<void()>(std::move(work)));
      return;
    }
#ifdef WITH_CUDA
    if (cuda != nullptr) {
      cuLaunchHostFunc(cuda, &call, new std::function<void()>(std::move(work)));
      return;
    }
#endif
    wait();
    work();
  }
  void start(MPIS_Request& request) { expect_equal(MPIS_Enqueue_start(queue, &request), MPIS_SUCCESS, "a start"); }
  void start_all(std::vector<MPIS_Request>& requests) {
    const int code = MPIS_Enqueue_startall(queue, static_cast<int>(requests.size()), requests.data());
    expect_equal(code, MPIS_SUCCESS, "a start of all");
  }
  void wait_all() { expect_equal(MPIS_Enqueue_waitall(queue), MPIS_SUCCESS, "a wait for all"); }
  void wait() { expect_equal(MPIS_Queue_wait(queue), MPIS_SUCCESS, "a wait of the host"); }

  MPIS_Queue queue = MPIS_QUEUE_NULL;
#ifdef WITH_CUDA
  CUstream cuda = nullptr;
#endif

 private:
  static void call(void* work) {
    auto* const function = static_cast<std::function<void()>*>(work);
    (*function)();
    delete function;
  }
  static int call_in_c(void* work) {
    call(work);
    return 0;
  }

  sluice_host_stream* host_ = nullptr;
};

inline MPIS_Request send_of(const void* buffer, int count, int peer, int tag = 0, MPI_Comm comm = MPI_COMM_WORLD,
                            MPI_Datatype type = MPI_INT) {
  MPIS_Request request = MPIS_REQUEST_NULL;
  const int code = MPIS_Send_init(buffer, count, type, peer, tag, comm, MPI_INFO_NULL, &request);
  expect_equal(code, MPIS_SUCCESS, "a send");
  return request;
}

inline MPIS_Request receive_of(void* buffer, int count, int peer, int tag = 0, MPI_Comm comm = MPI_COMM_WORLD,
                               MPI_Datatype type = MPI_INT) {
  MPIS_Request request = MPIS_REQUEST_NULL;
  const int code = MPIS_Recv_init(buffer, count, type, peer, tag, comm, MPI_INFO_NULL, &request);
  expect_equal(code, MPIS_SUCCESS, "a receive");
  return request;
}

inline void match(MPIS_Request& request) {
  expect_equal(MPIS_Match(&request, MPI_STATUS_IGNORE), MPIS_SUCCESS, "a match");
}

inline void match_all(std::vector<MPIS_Request>& requests) {
  const int code = MPIS_Matchall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  expect_equal(code, MPIS_SUCCESS, "a match of all");
}

inline void free_all(std::vector<MPIS_Request>& requests) {
  const int code = MPIS_Request_freeall(static_cast<int>(requests.size()), requests.data());
  expect_equal(code, MPIS_SUCCESS, "the end of all");
  for (MPIS_Request_struct* const request : requests) expect(request == MPIS_REQUEST_NULL, "a freed request is null");
}

/// Bytes that no other message has.
inline int stamp(int rank, int step, int i) { return rank * 1000000 + step * 1000 + i; }

inline void fill(std::vector<int>& buffer, int rank, int step) {
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = stamp(rank, step, static_cast<int>(i));
}

inline void expect_filled(const std::vector<int>& buffer, int rank, int step, const std::string& what) {
  for (std::size_t i = 0; i < buffer.size(); ++i)
    expect_equal(buffer[i], stamp(rank, step, static_cast<int>(i)), what + " at step " + std::to_string(step));
}

}  // namespace mpis_test
