// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's driver. They are taken at run time: a program that is linked with Sluice starts without it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

namespace sluice::device {

// cuda.h defines these names as macros that choose a version of each; the driver is asked for the name itself.
#define SLUICE_CUDA_CALLS(X)            \
  X(cuInit)                             \
  X(cuDriverGetVersion)                 \
  X(cuGetErrorName)                     \
  X(cuDeviceGetCount)                   \
  X(cuDeviceGet)                        \
  X(cuDeviceGetName)                    \
  X(cuDeviceGetUuid)                    \
  X(cuDeviceGetPCIBusId)                \
  X(cuDeviceTotalMem)                   \
  X(cuDeviceGetAttribute)               \
  X(cuDeviceCanAccessPeer)              \
  X(cuDevicePrimaryCtxRetain)           \
  X(cuCtxGetCurrent)                    \
  X(cuCtxGetDevice)                     \
  X(cuCtxPushCurrent)                   \
  X(cuCtxPopCurrent)                    \
  X(cuStreamGetCtx)                     \
  X(cuStreamGetId)                      \
  X(cuStreamSynchronize)                \
  X(cuStreamQuery)                      \
  X(cuStreamBatchMemOp)                 \
  X(cuThreadExchangeStreamCaptureMode)  \
  X(cuMemcpyAsync)                      \
  X(cuMemsetD8Async)                    \
  X(cuMemAlloc)                         \
  X(cuMemFree)                          \
  X(cuMemFreeAsync)                     \
  X(cuMemHostRegister)                  \
  X(cuMemHostUnregister)                \
  X(cuPointerGetAttribute)              \
  X(cuMemGetAddressRange)               \
  X(cuMemGetAllocationGranularity)      \
  X(cuMemCreate)                        \
  X(cuMemAddressReserve)                \
  X(cuMemMap)                           \
  X(cuMemSetAccess)                     \
  X(cuMemRetainAllocationHandle)        \
  X(cuMemExportToShareableHandle)       \
  X(cuMemImportFromShareableHandle)     \
  X(cuMemUnmap)                         \
  X(cuMemRelease)                       \
  X(cuMemAddressFree)                   \
  X(cuMemPoolExportToShareableHandle)   \
  X(cuMemPoolImportFromShareableHandle) \
  X(cuMemPoolExportPointer)             \
  X(cuMemPoolImportPointer)             \
  X(cuMemPoolSetAccess)                 \
  X(cuMemPoolDestroy)                   \
  X(cuIpcGetMemHandle)                  \
  X(cuIpcOpenMemHandle)                 \
  X(cuIpcCloseMemHandle)                \
  X(cuLaunchHostFunc)                   \
  X(cuLaunchKernel)                     \
  X(cuModuleLoadData)                   \
  X(cuModuleGetFunction)                \
  X(cuMemHostGetDevicePointer)          \
  X(cuStreamCreateWithPriority)         \
  X(cuCtxSynchronize)

struct CudaCalls {
#define SLUICE_DECLARE(call) decltype(&::call) call = nullptr;  // NOLINT(bugprone-macro-parentheses): a name
  SLUICE_CUDA_CALLS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
  // As of that version; cuda.h may have a later one.
  CUresult (*cuStreamGetCaptureInfo)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                     std::size_t*) = nullptr;
};

/// Returns why there are none; empty: all are there.
std::string load(CudaCalls& calls);

}  // namespace sluice::device
