// SPDX-License-Identifier: Apache-2.0
// CUDA's driver, which is loaded at run time, and what rivals that use it share. The emulated driver of the tests works
// too.
#pragma once

#include "apps/bench/harness/gpu_queue.hpp"
#include "apps/bench/rivals/programs/rival.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace rivals {

// NOLINTBEGIN(bugprone-macro-parentheses): names
#define SLUICE_RIVAL_CALLS(X)  \
  X(cuInit)                    \
  X(cuDeviceGetCount)          \
  X(cuDeviceGetAttribute)      \
  X(cuDevicePrimaryCtxRetain)  \
  X(cuCtxSetCurrent)           \
  X(cuMemAlloc)                \
  X(cuMemFree)                 \
  X(cuMemsetD8)                \
  X(cuCtxSynchronize)          \
  X(cuMemHostRegister)         \
  X(cuMemHostGetDevicePointer) \
  X(cuMemHostUnregister)       \
  X(cuIpcGetMemHandle)         \
  X(cuIpcOpenMemHandle)        \
  X(cuIpcCloseMemHandle)       \
  X(cuMemcpyDtoDAsync)         \
  X(cuMemcpyDtoH)              \
  X(cuModuleLoadData)          \
  X(cuModuleGetFunction)       \
  X(cuStreamSynchronize)       \
  X(cuStreamBatchMemOp)        \
  X(cuStreamWriteValue64)      \
  X(cuStreamWaitValue64)

/// The driver's functions.
struct Cuda {
  /// The driver of this process. @throws std::runtime_error if there is none, or no GPU.
  static const Cuda& here();

#define SLUICE_DECLARE(call) decltype(&::call) call = nullptr;
  SLUICE_RIVAL_CALLS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
  // NOLINTEND(bugprone-macro-parentheses)

  /// Makes `device` the calling thread's current device.
  void use(int device) const;
  /// True if both ranks share a GPU without MPS: then their kernels never run at the same time.
  bool ranks_take_turns() const;

 private:
  Cuda();
};

/// @throws std::runtime_error
void check(CUresult result, const char* what);

/// Zeroed memory of this rank's GPU, and the other rank's, which is mapped here. Both ranks make this object at the
/// same time, and destroy it at the same time.
class SharedGpuMemory {
 public:
  SharedGpuMemory(const Rank& rank, std::size_t bytes);
  SharedGpuMemory(const SharedGpuMemory&) = delete;
  SharedGpuMemory& operator=(const SharedGpuMemory&) = delete;
  ~SharedGpuMemory();

  CUdeviceptr mine() const { return mine_; }
  CUdeviceptr theirs() const { return theirs_; }

 private:
  const Rank& rank_;
  CUdeviceptr mine_ = 0;
  CUdeviceptr theirs_ = 0;
};

/// Makes a runner of the workload on a stream of its own, for which `open` makes the operations. Checks first that it
/// moves the right bytes.
std::unique_ptr<Runner> on_stream(const Workload& workload, const Rank& rank,
                                  const std::function<std::unique_ptr<Verbs>(CUstream)>& open);

/// A kernel that runs a ping-pong by itself, with one block on each side.
class Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  virtual Verbs::Slots slots() const = 0;
  /// Enqueues a launch of the kernel with so many round trips.
  virtual void launch(long rounds) = 0;
};

/// Like on_stream, for a kernel.
/// @throws std::runtime_error if the kernels of both ranks cannot run at the same time
std::unique_ptr<Runner> in_kernel(const Workload& workload, const Rank& rank,
                                  const std::function<std::unique_ptr<Kernel>(bench::GpuQueue&)>& open);

}  // namespace rivals
