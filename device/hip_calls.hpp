// SPDX-License-Identifier: Apache-2.0
// The functions of HIP's runtime, loaded at run time: a program that is linked with Sluice starts without the runtime.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/vendor_driver.hpp"

namespace sluice::device {

// Names without their prefix "hip", and types: the header overloads some of the functions by templates.
#define SLUICE_HIP_CALLS(X)                                                                                  \
  X(Init, unsigned)                                                                                          \
  X(DriverGetVersion, int*)                                                                                  \
  X(GetDeviceCount, int*)                                                                                    \
  X(GetDevice, int*)                                                                                         \
  X(SetDevice, int)                                                                                          \
  X(DeviceGetName, char*, int, hipDevice_t)                                                                  \
  X(DeviceGetUuid, hipUUID*, hipDevice_t)                                                                    \
  X(DeviceGetPCIBusId, char*, int, int)                                                                      \
  X(DeviceTotalMem, std::size_t*, hipDevice_t)                                                               \
  X(DeviceGetAttribute, int*, hipDeviceAttribute_t, int)                                                     \
  X(StreamCreateWithPriority, hipStream_t*, unsigned, int)                                                   \
  X(StreamSynchronize, hipStream_t)                                                                          \
  X(StreamQuery, hipStream_t)                                                                                \
  X(StreamGetCaptureInfo, hipStream_t, hipStreamCaptureStatus*, unsigned long long*)                         \
  X(StreamWaitValue64, hipStream_t, void*, std::uint64_t, unsigned, std::uint64_t)                           \
  X(StreamWriteValue64, hipStream_t, void*, std::uint64_t, unsigned)                                         \
  X(ThreadExchangeStreamCaptureMode, hipStreamCaptureMode*)                                                  \
  X(Malloc, void**, std::size_t)                                                                             \
  X(Free, void*)                                                                                             \
  X(MemcpyAsync, void*, const void*, std::size_t, hipMemcpyKind, hipStream_t)                                \
  X(MemsetAsync, void*, int, std::size_t, hipStream_t)                                                       \
  X(HostRegister, void*, std::size_t, unsigned)                                                              \
  X(HostUnregister, void*)                                                                                   \
  X(HostGetDevicePointer, void**, void*, unsigned)                                                           \
  X(PointerGetAttributes, hipPointerAttribute_t*, const void*)                                               \
  X(PointerGetAttribute, void*, hipPointer_attribute, hipDeviceptr_t)                                        \
  X(MemGetAddressRange, hipDeviceptr_t*, std::size_t*, hipDeviceptr_t)                                       \
  X(IpcGetMemHandle, hipIpcMemHandle_t*, void*)                                                              \
  X(IpcOpenMemHandle, void**, hipIpcMemHandle_t, unsigned)                                                   \
  X(IpcCloseMemHandle, void*)                                                                                \
  X(ModuleLoadData, hipModule_t*, const void*)                                                               \
  X(ModuleGetFunction, hipFunction_t*, hipModule_t, const char*)                                             \
  X(ModuleLaunchKernel, hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    hipStream_t, void**, void**)

struct HipCalls {
  using Result = hipError_t;
  using StreamHandle = hipStream_t;
  using CaptureMode = hipStreamCaptureMode;
  using Module = hipModule_t;
  using Function = hipFunction_t;
  static constexpr const char* kName = "hip";
  static constexpr Stream::Kind kKind = Stream::Kind::hip;
  static constexpr Result kSuccess = hipSuccess;
  static constexpr Result kNotReady = hipErrorNotReady;
  static constexpr Result kOutOfMemory = hipErrorOutOfMemory;
  static constexpr CaptureMode kRelaxed = hipStreamCaptureModeRelaxed;
  static constexpr unsigned kNonBlocking = hipStreamNonBlocking;
  static constexpr auto kStream = &Stream::hip;
  static constexpr auto kKernels = &hip_kernels;

#define SLUICE_DECLARE(name, ...) \
  Call<hipError_t(__VA_ARGS__)> name{"hip" #name};  // NOLINT(bugprone-macro-parentheses): a name
  SLUICE_HIP_CALLS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
  static constexpr auto kLaunch = &HipCalls::ModuleLaunchKernel;
  // Null before HIP 5.3, and 5.6.
  Call<hipError_t(hipStream_t, void (*)(void*), void*)> LaunchHostFunc{"hipLaunchHostFunc"};
  Call<hipError_t(hipStream_t, hipDevice_t*)> StreamGetDevice{"hipStreamGetDevice"};

  std::string text_of(Result result) const { return "error " + std::to_string(result) + " of HIP"; }
  static std::string version_text(int version) { return std::to_string(version); }
};

/// Loads the functions. Returns why there are none; empty: all are there.
std::string load(HipCalls& calls);

}  // namespace sluice::device
