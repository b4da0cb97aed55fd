// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's runtime that MPICH's tests of streams use, on host streams of Sluice's, for stream_mpi.py.
#pragma once

#include <sluice/dialects/mpich.h>

#include "tests/neighbours/mpi_advance/cuda_runtime.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

using std::abs;
using std::max;

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }

inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return sluice_host_stream_synchronize(stream, SLUICE_FOREVER);
}

inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::erase(all_streams(), stream);
  return sluice_host_stream_free(&stream);
}

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  *memory = static_cast<T*>(std::malloc(bytes));
  std::memset(static_cast<void*>(*memory), 0xA5, bytes);
  return cudaSuccess;
}

inline cudaError_t cudaFree(void* memory) {
  const cudaError_t error = cudaDeviceSynchronize();
  std::free(memory);
  return error;
}

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  std::function<void()> work = [=] { std::memcpy(to, from, bytes); };
  if (kind == cudaMemcpyHostToDevice) {
    const auto* const begin = static_cast<const std::byte*>(from);
    work = [=, staged = std::vector<std::byte>(begin, begin + bytes)] { std::memcpy(to, staged.data(), bytes); };
  }
  return sluice_host_stream_run(stream, &call_work, new std::function<void()>(std::move(work)));
}

/// Names a host stream where the test names one of CUDA's.
inline int set_info(MPI_Info info, const char* key, const char* value) {
  return MPI_Info_set(info, key, std::strcmp(value, "cudaStream_t") == 0 ? "sluice_host_stream*" : value);
}
#define MPI_Info_set set_info
