// SPDX-License-Identifier: Apache-2.0
// A queue of MPI Advance's on a stream of each kind, and work in the order of that stream.
#pragma once

#include <sluice/dialects/mpis.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/ordered_stream.hpp"

namespace stream_mpi_test {

/// `own`: of the library; `host`: a host stream of the program; `cuda`, `hip`: of the emulated GPU. A stream of HIP's,
/// by the stand-in for its runtime, is one of CUDA's.
inline std::string stream_kind() {
  const char* const set = std::getenv("MPIS_TEST_STREAM");
  return set == nullptr ? "own" : set;
}

inline bool stream_is_of_gpu() { return stream_kind() == "cuda" || stream_kind() == "hip"; }

class Order {
 public:
  Order() {
    void* variable = nullptr;
    MPIS_Queue_type type = THREAD;
    if (stream_kind() != "own") {
      stream.emplace(stream_is_of_gpu());
      variable = static_cast<void*>(&stream->stream);
    }
#ifdef WITH_CUDA
    if (stream_is_of_gpu()) {
      variable = static_cast<void*>(&stream->cuda);
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
  }

  /// Behind all that is enqueued.
  void run(std::function<void()> work) {
    if (stream) return stream->run(std::move(work));
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

  std::optional<OrderedStream> stream;  ///< none: the library's own
  MPIS_Queue queue = MPIS_QUEUE_NULL;
};

/// Holds up what is behind it on a stream of the program's.
class Gate {
 public:
  explicit Gate(Order& order) {
    order.run([this] { open_.wait(false); });
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_ = false;
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

}  // namespace stream_mpi_test
