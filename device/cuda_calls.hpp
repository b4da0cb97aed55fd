// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's driver, loaded at run time: a program that is linked with Sluice starts without the driver.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <string>

#include "device/vendor_driver.hpp"

namespace sluice::device {

// Names without their prefix "cu". cuda.h defines the whole names as macros that choose a version of each function; the
// driver is given the name itself.
#define SLUICE_CUDA_CALLS(X)          \
  X(Init)                             \
  X(DriverGetVersion)                 \
  X(GetErrorName)                     \
  X(DeviceGetCount)                   \
  X(DeviceGet)                        \
  X(DeviceGetName)                    \
  X(DeviceGetUuid)                    \
  X(DeviceGetPCIBusId)                \
  X(DeviceTotalMem)                   \
  X(DeviceGetAttribute)               \
  X(DeviceCanAccessPeer)              \
  X(DevicePrimaryCtxRetain)           \
  X(CtxGetCurrent)                    \
  X(CtxGetDevice)                     \
  X(CtxPushCurrent)                   \
  X(CtxPopCurrent)                    \
  X(StreamGetCtx)                     \
  X(StreamGetId)                      \
  X(StreamSynchronize)                \
  X(StreamQuery)                      \
  X(StreamBatchMemOp)                 \
  X(ThreadExchangeStreamCaptureMode)  \
  X(MemcpyAsync)                      \
  X(MemsetD8Async)                    \
  X(MemAlloc)                         \
  X(MemFree)                          \
  X(MemFreeAsync)                     \
  X(MemHostRegister)                  \
  X(MemHostUnregister)                \
  X(PointerGetAttribute)              \
  X(MemGetAddressRange)               \
  X(MemGetAllocationGranularity)      \
  X(MemCreate)                        \
  X(MemAddressReserve)                \
  X(MemMap)                           \
  X(MemSetAccess)                     \
  X(MemRetainAllocationHandle)        \
  X(MemExportToShareableHandle)       \
  X(MemImportFromShareableHandle)     \
  X(MemUnmap)                         \
  X(MemRelease)                       \
  X(MemAddressFree)                   \
  X(MemPoolExportToShareableHandle)   \
  X(MemPoolImportFromShareableHandle) \
  X(MemPoolExportPointer)             \
  X(MemPoolImportPointer)             \
  X(MemPoolSetAccess)                 \
  X(MemPoolDestroy)                   \
  X(IpcGetMemHandle)                  \
  X(IpcOpenMemHandle)                 \
  X(IpcCloseMemHandle)                \
  X(LaunchHostFunc)                   \
  X(LaunchKernel)                     \
  X(ModuleLoadData)                   \
  X(ModuleGetFunction)                \
  X(MemHostGetDevicePointer)          \
  X(StreamCreateWithPriority)         \
  X(CtxSynchronize)

struct CudaCalls {
  using Result = CUresult;
  using StreamHandle = CUstream;
  using CaptureMode = CUstreamCaptureMode;
  using Module = CUmodule;
  using Function = CUfunction;
  static constexpr const char* kName = "cuda";
  static constexpr Stream::Kind kKind = Stream::Kind::cuda;
  static constexpr Result kSuccess = CUDA_SUCCESS;
  static constexpr Result kNotReady = CUDA_ERROR_NOT_READY;
  static constexpr Result kOutOfMemory = CUDA_ERROR_OUT_OF_MEMORY;
  static constexpr CaptureMode kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  static constexpr unsigned kNonBlocking = CU_STREAM_NON_BLOCKING;
  static constexpr auto kStream = &Stream::cuda;
  static constexpr auto kKernels = &cuda_kernels;

#define SLUICE_DECLARE(name) Call<decltype(::cu##name)> name{"cu" #name};  // NOLINT(bugprone-macro-parentheses): a name
  SLUICE_CUDA_CALLS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
  static constexpr auto kLaunch = &CudaCalls::LaunchKernel;
  // The function of version 12.0; cuda.h may declare a later one.
  Call<CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, std::size_t*)>
      StreamGetCaptureInfo{"cuStreamGetCaptureInfo"};

  /// Loads the functions. Returns why there are none; empty: all are there.
  std::string load() {
    constexpr int kVersion = 12000;  // the oldest whose calls are as we use them
    constexpr const char* kTooOld = "the CUDA driver is older than version 12.0";
    void* const library = dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return "there is no CUDA driver (libcuda.so.1)";
    const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
    if (find == nullptr) return kTooOld;
    const auto get = [&](auto& call) {
      void** const function = reinterpret_cast<void**>(&call.function);
      return find(call.name, function, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) == CUDA_SUCCESS &&
             *function != nullptr;
    };
#define SLUICE_GET(name) \
  if (!get(name)) return kTooOld;
    SLUICE_CUDA_CALLS(SLUICE_GET)
    SLUICE_GET(StreamGetCaptureInfo)
#undef SLUICE_GET
    return {};
  }

  std::string text_of(Result result) const {
    const char* text = nullptr;
    return GetErrorName(result, &text) == CUDA_SUCCESS ? text : "an unknown error";
  }

  static std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
};

}  // namespace sluice::device
