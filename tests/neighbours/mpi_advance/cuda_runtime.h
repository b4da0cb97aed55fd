// SPDX-License-Identifier: Apache-2.0
// The parts of CUDA's runtime that MPI Advance's tests need, on host streams of Sluice's: a kernel is a loop over its
// threads. So a plain C++ compiler builds them, but for the launches, which stream_mpi.py writes as calls of
// `launched`.
#pragma once

#include <sluice/c/stream.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#define __global__ inline

using cudaStream_t = sluice_host_stream*;
using cudaError_t = long;  // not CUresult, on which the tests overload
inline constexpr cudaError_t cudaSuccess = 0;
inline constexpr unsigned cudaStreamNonBlocking = 1;

struct Index {
  int x = 0;
};
inline thread_local Index blockIdx;
inline thread_local Index blockDim;
inline thread_local Index threadIdx;

inline std::vector<cudaStream_t>& all_streams() {
  static std::vector<cudaStream_t> all;
  return all;
}

inline const char* cudaGetErrorString(cudaError_t) { return sluice_last_error(); }

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const cudaError_t error = sluice_host_stream_create(nullptr, stream);
  if (error == cudaSuccess) all_streams().push_back(*stream);
  return error;
}

inline cudaError_t cudaDeviceSynchronize() {
  for (cudaStream_t stream : all_streams()) {
    if (const cudaError_t error = sluice_host_stream_synchronize(stream, SLUICE_FOREVER)) return error;
  }
  return cudaSuccess;
}
inline cudaError_t hipDeviceSynchronize() { return cudaDeviceSynchronize(); }

inline void stream_sync(cudaStream_t stream) { sluice_host_stream_synchronize(stream, SLUICE_FOREVER); }

inline int call_work(void* work) {
  auto* const function = static_cast<std::function<void()>*>(work);
  (*function)();
  delete function;
  return 0;
}

template <class... Parameters>
struct Launch {
  void (*kernel)(Parameters...);
  int grid;
  int block;
  cudaStream_t stream;

  void operator()(Parameters... arguments) const {
    const auto work = [=, *this] {
      blockDim.x = block;
      for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) kernel(arguments...);
      }
    };
    if (stream == nullptr) return work();
    sluice_host_stream_run(stream, &call_work, new std::function<void()>(work));
  }
};

template <class... Parameters>
Launch<Parameters...> launched(void (*kernel)(Parameters...), int grid, int block, int /*shared*/ = 0,
                               cudaStream_t stream = nullptr) {
  return {kernel, grid, block, stream};
}

inline cudaError_t hipMalloc(void** memory, std::size_t bytes) {
  *memory = std::calloc(bytes, 1);
  return cudaSuccess;
}
inline cudaError_t hipFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

#ifdef LACKS_ALLOCATION
/// A function that one of the tests calls and does not have.
inline void allocate_gpu_memory(void** memory, std::size_t bytes) { (void)hipMalloc(memory, bytes); }
#endif
