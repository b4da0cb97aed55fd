// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's driver, loaded at run time: a program that is linked with Sluice starts without the driver.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <string>

#include "device/vendor_driver.hpp"

namespace sluice::device {

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

  static CUdeviceptr address(const void* pointer) noexcept { return reinterpret_cast<CUdeviceptr>(pointer); }

  // cuda.h defines some of the names as macros that choose a version of the function; the driver is given the name
  // itself.
  Symbols all;
  Call<decltype(::cuInit)> Init{all, "cuInit"};
  Call<decltype(::cuDriverGetVersion)> DriverGetVersion{all, "cuDriverGetVersion"};
  Call<decltype(::cuGetErrorName)> GetErrorName{all, "cuGetErrorName"};
  Call<decltype(::cuDeviceGetCount)> DeviceGetCount{all, "cuDeviceGetCount"};
  Call<decltype(::cuDeviceGet)> DeviceGet{all, "cuDeviceGet"};
  Call<decltype(::cuDeviceGetName)> DeviceGetName{all, "cuDeviceGetName"};
  Call<decltype(::cuDeviceGetUuid)> DeviceGetUuid{all, "cuDeviceGetUuid"};
  Call<decltype(::cuDeviceGetPCIBusId)> DeviceGetPCIBusId{all, "cuDeviceGetPCIBusId"};
  Call<decltype(::cuDeviceTotalMem)> DeviceTotalMem{all, "cuDeviceTotalMem"};
  Call<decltype(::cuDeviceGetAttribute)> DeviceGetAttribute{all, "cuDeviceGetAttribute"};
  Call<decltype(::cuDeviceCanAccessPeer)> DeviceCanAccessPeer{all, "cuDeviceCanAccessPeer"};
  Call<decltype(::cuDevicePrimaryCtxRetain)> DevicePrimaryCtxRetain{all, "cuDevicePrimaryCtxRetain"};
  Call<decltype(::cuCtxGetCurrent)> CtxGetCurrent{all, "cuCtxGetCurrent"};
  Call<decltype(::cuCtxGetDevice)> CtxGetDevice{all, "cuCtxGetDevice"};
  Call<decltype(::cuCtxPushCurrent)> CtxPushCurrent{all, "cuCtxPushCurrent"};
  Call<decltype(::cuCtxPopCurrent)> CtxPopCurrent{all, "cuCtxPopCurrent"};
  Call<decltype(::cuStreamGetCtx)> StreamGetCtx{all, "cuStreamGetCtx"};
  Call<decltype(::cuStreamGetId)> StreamGetId{all, "cuStreamGetId"};
  Call<decltype(::cuStreamSynchronize)> StreamSynchronize{all, "cuStreamSynchronize"};
  Call<decltype(::cuStreamQuery)> StreamQuery{all, "cuStreamQuery"};
  Call<decltype(::cuStreamBatchMemOp)> StreamBatchMemOp{all, "cuStreamBatchMemOp"};
  Call<decltype(::cuThreadExchangeStreamCaptureMode)> ThreadExchangeStreamCaptureMode{
      all, "cuThreadExchangeStreamCaptureMode"};
  Call<decltype(::cuMemcpyAsync)> MemcpyAsync{all, "cuMemcpyAsync"};
  Call<decltype(::cuMemsetD8Async)> MemsetAsync{all, "cuMemsetD8Async"};
  Call<decltype(::cuMemAlloc)> MemAlloc{all, "cuMemAlloc"};
  Call<decltype(::cuMemFree)> MemFree{all, "cuMemFree"};
  Call<decltype(::cuMemFreeAsync)> MemFreeAsync{all, "cuMemFreeAsync"};
  Call<decltype(::cuMemHostRegister)> MemHostRegister{all, "cuMemHostRegister"};
  Call<decltype(::cuMemHostUnregister)> MemHostUnregister{all, "cuMemHostUnregister"};
  Call<decltype(::cuPointerGetAttribute)> PointerGetAttribute{all, "cuPointerGetAttribute"};
  Call<decltype(::cuMemGetAddressRange)> MemGetAddressRange{all, "cuMemGetAddressRange"};
  Call<decltype(::cuMemGetAllocationGranularity)> MemGetAllocationGranularity{all, "cuMemGetAllocationGranularity"};
  Call<decltype(::cuMemCreate)> MemCreate{all, "cuMemCreate"};
  Call<decltype(::cuMemAddressReserve)> MemAddressReserve{all, "cuMemAddressReserve"};
  Call<decltype(::cuMemMap)> MemMap{all, "cuMemMap"};
  Call<decltype(::cuMemSetAccess)> MemSetAccess{all, "cuMemSetAccess"};
  Call<decltype(::cuMemRetainAllocationHandle)> MemRetainAllocationHandle{all, "cuMemRetainAllocationHandle"};
  Call<decltype(::cuMemExportToShareableHandle)> MemExportToShareableHandle{all, "cuMemExportToShareableHandle"};
  Call<decltype(::cuMemImportFromShareableHandle)> MemImportFromShareableHandle{all, "cuMemImportFromShareableHandle"};
  Call<decltype(::cuMemUnmap)> MemUnmap{all, "cuMemUnmap"};
  Call<decltype(::cuMemRelease)> MemRelease{all, "cuMemRelease"};
  Call<decltype(::cuMemAddressFree)> MemAddressFree{all, "cuMemAddressFree"};
  Call<decltype(::cuMemPoolExportToShareableHandle)> MemPoolExportToShareableHandle{all,
                                                                                    "cuMemPoolExportToShareableHandle"};
  Call<decltype(::cuMemPoolImportFromShareableHandle)> MemPoolImportFromShareableHandle{
      all, "cuMemPoolImportFromShareableHandle"};
  Call<decltype(::cuMemPoolExportPointer)> MemPoolExportPointer{all, "cuMemPoolExportPointer"};
  Call<decltype(::cuMemPoolImportPointer)> MemPoolImportPointer{all, "cuMemPoolImportPointer"};
  Call<decltype(::cuMemPoolSetAccess)> MemPoolSetAccess{all, "cuMemPoolSetAccess"};
  Call<decltype(::cuMemPoolDestroy)> MemPoolDestroy{all, "cuMemPoolDestroy"};
  Call<decltype(::cuIpcGetMemHandle)> IpcGetMemHandle{all, "cuIpcGetMemHandle"};
  Call<decltype(::cuIpcOpenMemHandle)> IpcOpenMemHandle{all, "cuIpcOpenMemHandle"};
  Call<decltype(::cuIpcCloseMemHandle)> IpcCloseMemHandle{all, "cuIpcCloseMemHandle"};
  Call<decltype(::cuLaunchHostFunc)> LaunchHostFunc{all, "cuLaunchHostFunc"};
  Call<decltype(::cuLaunchKernel)> LaunchKernel{all, "cuLaunchKernel"};
  Call<decltype(::cuModuleLoadData)> ModuleLoadData{all, "cuModuleLoadData"};
  Call<decltype(::cuModuleGetFunction)> ModuleGetFunction{all, "cuModuleGetFunction"};
  Call<decltype(::cuMemHostGetDevicePointer)> MemHostGetDevicePointer{all, "cuMemHostGetDevicePointer"};
  Call<decltype(::cuStreamCreateWithPriority)> StreamCreateWithPriority{all, "cuStreamCreateWithPriority"};
  Call<decltype(::cuCtxSynchronize)> CtxSynchronize{all, "cuCtxSynchronize"};
  // The function of version 12.0; cuda.h may declare a later one.
  Call<CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, std::size_t*)>
      StreamGetCaptureInfo{all, "cuStreamGetCaptureInfo"};

  /// Loads the functions. Returns why there are none; empty: all are there.
  std::string load() {
    constexpr int kVersion = 12000;  // the oldest whose calls are as we use them
    constexpr const char* kTooOld = "the CUDA driver is older than version 12.0";
    void* const library = dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return "there is no CUDA driver (libcuda.so.1)";
    const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
    if (find == nullptr) return kTooOld;
    for (Symbol* const one : all) {
      const CUresult found = find(one->name, &one->address, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);
      if (found != CUDA_SUCCESS || one->address == nullptr) return kTooOld;
    }
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
