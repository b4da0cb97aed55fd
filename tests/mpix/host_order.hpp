// SPDX-License-Identifier: Apache-2.0
// A host stream of the program, or with MPIX_TEST_STREAM=cuda or hip one of the emulated GPU, and work in its order.
#pragma once

#include <sluice/c/stream.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/mpi_rma/checks.hpp"

#ifdef WITH_CUDA
#include <cuda.h>
#endif

namespace mpix_test {

using checks::expect;
using checks::expect_equal;
using checks::world_rank;
using checks::world_size;

/// In the words of MPICH's dialect. A stream of HIP's, by the stand-in for its runtime, is one of CUDA's.
inline std::string type_of_stream() {
  const char* const set = std::getenv("MPIX_TEST_STREAM");
  return set == nullptr ? "sluice_host_stream*" : std::string(set) + "Stream_t";
}
inline bool on_gpu() { return type_of_stream() != "sluice_host_stream*"; }

#ifdef WITH_CUDA
inline void make_gpu_current() {
  CUcontext context = nullptr;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
}
#endif

class HostOrder {
 public:
  HostOrder() {
#ifdef WITH_CUDA
    if (on_gpu()) {
      make_gpu_current();
      expect(cuStreamCreate(&cuda, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "a stream of the GPU");
      return;
    }
#endif
    expect_equal(sluice_host_stream_create(nullptr, &stream), SLUICE_OK, "a host stream");
  }
  HostOrder(const HostOrder&) = delete;
  HostOrder& operator=(const HostOrder&) = delete;
  ~HostOrder() {
    if (stream != nullptr) sluice_host_stream_free(&stream);
#ifdef WITH_CUDA
    if (cuda != nullptr) cuStreamDestroy(cuda);
#endif
  }

  /// As the dialects take it.
  void* handle_of_stream() const {
#ifdef WITH_CUDA
    if (cuda != nullptr) return static_cast<void*>(cuda);
#endif
    return static_cast<void*>(stream);
  }

  /// Behind all that is enqueued.
  void run(std::function<void()> work) {
    auto* const owned = new std::function<void()>(std::move(work));
#ifdef WITH_CUDA
    if (cuda != nullptr) {
      cuLaunchHostFunc(
          cuda, [](void* argument) { (void)call(argument); }, static_cast<void*>(owned));
      return;
    }
#endif
    sluice_host_stream_run(stream, &call, owned);
  }
  void wait() {
#ifdef WITH_CUDA
    if (cuda != nullptr) {
      expect(cuStreamSynchronize(cuda) == CUDA_SUCCESS, "a wait of the host");
      return;
    }
#endif
    expect_equal(sluice_host_stream_synchronize(stream, SLUICE_FOREVER), SLUICE_OK, "a wait of the host");
  }

  sluice_host_stream* stream = nullptr;
#ifdef WITH_CUDA
  CUstream cuda = nullptr;
#endif

 private:
  static int call(void* work) {
    auto* const function = static_cast<std::function<void()>*>(work);
    (*function)();
    delete function;
    return 0;
  }
};

/// Bytes that no other message has.
inline int stamp(int rank, int step, int i) { return rank * 1000000 + step * 1000 + i; }

inline void fill(std::vector<int>& buffer, int rank, int step) {
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = stamp(rank, step, static_cast<int>(i));
}

inline void expect_filled(const std::vector<int>& buffer, int rank, int step, const std::string& what) {
  for (std::size_t i = 0; i < buffer.size(); ++i)
    expect_equal(buffer[i], stamp(rank, step, static_cast<int>(i)), what + " at step " + std::to_string(step));
}

inline std::vector<int> poisoned(std::size_t count) { return std::vector<int>(count, -7); }

inline int next_rank() { return (world_rank() + 1) % world_size(); }
inline int rank_before() { return (world_rank() + world_size() - 1) % world_size(); }

/// What a rank does that has seen the end of its peer: MPI cannot be ended any more.
[[noreturn]] void leave(bool good);

}  // namespace mpix_test
