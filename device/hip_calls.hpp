// SPDX-License-Identifier: Apache-2.0
// The functions of HIP's runtime. They are taken at run time: a program that is linked with Sluice starts without it.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice::device {

// With their types: the header overloads some of them by templates.
#define SLUICE_HIP_CALLS(X)                                                                                     \
  X(hipInit, unsigned)                                                                                          \
  X(hipDriverGetVersion, int*)                                                                                  \
  X(hipGetDeviceCount, int*)                                                                                    \
  X(hipGetDevice, int*)                                                                                         \
  X(hipSetDevice, int)                                                                                          \
  X(hipDeviceGetName, char*, int, hipDevice_t)                                                                  \
  X(hipDeviceGetUuid, hipUUID*, hipDevice_t)                                                                    \
  X(hipDeviceGetPCIBusId, char*, int, int)                                                                      \
  X(hipDeviceTotalMem, std::size_t*, hipDevice_t)                                                               \
  X(hipDeviceGetAttribute, int*, hipDeviceAttribute_t, int)                                                     \
  X(hipStreamCreateWithPriority, hipStream_t*, unsigned, int)                                                   \
  X(hipStreamSynchronize, hipStream_t)                                                                          \
  X(hipStreamQuery, hipStream_t)                                                                                \
  X(hipStreamGetCaptureInfo, hipStream_t, hipStreamCaptureStatus*, unsigned long long*)                         \
  X(hipStreamWaitValue64, hipStream_t, void*, std::uint64_t, unsigned, std::uint64_t)                           \
  X(hipStreamWriteValue64, hipStream_t, void*, std::uint64_t, unsigned)                                         \
  X(hipThreadExchangeStreamCaptureMode, hipStreamCaptureMode*)                                                  \
  X(hipMalloc, void**, std::size_t)                                                                             \
  X(hipFree, void*)                                                                                             \
  X(hipMemcpyAsync, void*, const void*, std::size_t, hipMemcpyKind, hipStream_t)                                \
  X(hipMemsetAsync, void*, int, std::size_t, hipStream_t)                                                       \
  X(hipHostRegister, void*, std::size_t, unsigned)                                                              \
  X(hipHostUnregister, void*)                                                                                   \
  X(hipHostGetDevicePointer, void**, void*, unsigned)                                                           \
  X(hipPointerGetAttributes, hipPointerAttribute_t*, const void*)                                               \
  X(hipPointerGetAttribute, void*, hipPointer_attribute, hipDeviceptr_t)                                        \
  X(hipMemGetAddressRange, hipDeviceptr_t*, std::size_t*, hipDeviceptr_t)                                       \
  X(hipIpcGetMemHandle, hipIpcMemHandle_t*, void*)                                                              \
  X(hipIpcOpenMemHandle, void**, hipIpcMemHandle_t, unsigned)                                                   \
  X(hipIpcCloseMemHandle, void*)                                                                                \
  X(hipModuleLoadData, hipModule_t*, const void*)                                                               \
  X(hipModuleGetFunction, hipFunction_t*, hipModule_t, const char*)                                             \
  X(hipModuleLaunchKernel, hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    hipStream_t, void**, void**)

struct HipCalls {
#define SLUICE_DECLARE(call, ...) hipError_t (*call)(__VA_ARGS__) = nullptr;
  SLUICE_HIP_CALLS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
  // Null: before HIP 5.3, and 5.6.
  hipError_t (*hipLaunchHostFunc)(hipStream_t, void (*)(void*), void*) = nullptr;
  hipError_t (*hipStreamGetDevice)(hipStream_t, hipDevice_t*) = nullptr;
};

/// Returns why there are none; empty: all are there.
std::string load(HipCalls& calls);

}  // namespace sluice::device
