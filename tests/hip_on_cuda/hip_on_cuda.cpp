// SPDX-License-Identifier: Apache-2.0
// The functions of HIP's runtime that device/hip.cpp uses, done by CUDA's driver. A stream of HIP's is one of CUDA's.
#include <cuda.h>

#pragma GCC visibility push(default)
#include <hip/hip_runtime_api.h>
#pragma GCC visibility pop

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sluice::device {
std::span<const std::byte> cuda_kernels() noexcept;  // device/kernels.cu
}

namespace {

hipError_t hip(CUresult result) { return static_cast<hipError_t>(result); }  // HIP has CUDA's numbers

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
CUstream cuda(hipStream_t stream) { return reinterpret_cast<CUstream>(stream); }

template <class T>
CUresult about(const void* at, CUpointer_attribute which, T& value) {
  return cuPointerGetAttribute(&value, which, address(at));
}

/// The device's primary context, which is kept to the end of the process, as HIP's runtime does.
CUresult primary(int device, CUcontext& context) {
  static std::array<std::atomic<CUcontext>, 64> kept;
  CUdevice gpu = 0;
  if (const CUresult error = cuDeviceGet(&gpu, device)) return error;
  std::atomic<CUcontext>& known = kept.at(static_cast<std::size_t>(device));
  context = known;
  if (context != nullptr) return CUDA_SUCCESS;
  const CUresult result = cuDevicePrimaryCtxRetain(&context, gpu);
  if (result == CUDA_SUCCESS) known = context;
  return result;
}

CUresult make_current(int device) {
  CUcontext context = nullptr;
  if (const CUresult error = primary(device, context)) return error;
  return cuCtxSetCurrent(context);
}

/// A thread that has named no device uses the first.
CUresult current(CUdevice& device) {
  if (cuCtxGetDevice(&device) == CUDA_SUCCESS) return CUDA_SUCCESS;
  if (const CUresult error = make_current(0)) return error;
  return cuCtxGetDevice(&device);
}

/// Does it with some device current.
template <class F>
hipError_t call(F function) {
  CUdevice device = 0;
  if (const CUresult error = current(device)) return hip(error);
  return hip(function());
}

/// Does it with the memory's device current, whatever that of the thread is.
template <class F>
hipError_t call_at(const void* memory, F function) {
  int device = 0;
  CUcontext context = nullptr;
  CUcontext popped = nullptr;
  if (const CUresult error = about(memory, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, device)) return hip(error);
  if (const CUresult error = primary(device, context)) return hip(error);
  if (const CUresult error = cuCtxPushCurrent(context)) return hip(error);
  const CUresult result = function();
  cuCtxPopCurrent(&popped);
  return hip(result);
}

}  // namespace

hipError_t hipInit(unsigned flags) { return hip(cuInit(flags)); }

hipError_t hipDriverGetVersion(int* version) { return hip(cuDriverGetVersion(version)); }

hipError_t hipGetDeviceCount(int* count) {
  if (cuInit(0) != CUDA_SUCCESS) return hipErrorNoDevice;
  return hip(cuDeviceGetCount(count));
}

hipError_t hipGetDevice(int* device) { return hip(current(*device)); }

hipError_t hipSetDevice(int device) { return hip(make_current(device)); }

hipError_t hipDeviceGetName(char* name, int bytes, hipDevice_t device) {
  return hip(cuDeviceGetName(name, bytes, device));
}

hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device) {
  CUuuid of{};
  static_assert(sizeof of.bytes == sizeof uuid->bytes);
  const CUresult result = cuDeviceGetUuid(&of, device);
  std::memcpy(uuid->bytes, of.bytes, sizeof of.bytes);
  return hip(result);
}

hipError_t hipDeviceGetPCIBusId(char* id, int bytes, int device) { return hip(cuDeviceGetPCIBusId(id, bytes, device)); }

hipError_t hipDeviceTotalMem(std::size_t* bytes, hipDevice_t device) { return hip(cuDeviceTotalMem(bytes, device)); }

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which, int device) {
  if (which != hipDeviceAttributeCanUseStreamWaitValue) return hipErrorNotSupported;
  return hip(cuDeviceGetAttribute(value, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device));
}

/// By this function programs of HIP are known (dialects/common/line.cpp).
hipError_t hipStreamCreate(hipStream_t* stream) { return hipStreamCreateWithPriority(stream, hipStreamDefault, 0); }

hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int priority) {
  return call([&] { return cuStreamCreateWithPriority(reinterpret_cast<CUstream*>(stream), flags, priority); });
}

/// Which the headers of HIP 5.2 do not declare.
extern "C" __attribute__((visibility("default"))) hipError_t hipStreamGetDevice(hipStream_t stream,
                                                                                hipDevice_t* device) {
  return call([&] {
    CUcontext own = nullptr;
    CUcontext popped = nullptr;
    if (const CUresult error = cuStreamGetCtx(cuda(stream), &own)) return error;
    if (const CUresult error = cuCtxPushCurrent(own)) return error;
    const CUresult result = cuCtxGetDevice(device);
    cuCtxPopCurrent(&popped);
    return result;
  });
}

hipError_t hipStreamSynchronize(hipStream_t stream) {
  return call([&] { return cuStreamSynchronize(cuda(stream)); });
}

hipError_t hipStreamQuery(hipStream_t stream) {
  return call([&] { return cuStreamQuery(cuda(stream)); });
}

hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus* status, unsigned long long* id) {
  CUstreamCaptureStatus now = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  const hipError_t result = call([&] {
#if CUDA_VERSION >= 13000
    return cuStreamGetCaptureInfo(cuda(stream), &now, &number, nullptr, nullptr, nullptr, nullptr);
#else
    return cuStreamGetCaptureInfo(cuda(stream), &now, &number, nullptr, nullptr, nullptr);
#endif
  });
  *status = static_cast<hipStreamCaptureStatus>(now);
  *id = number;
  return result;
}

/// HIP's >= is not cyclic, as CUDA's is; below 2^63 they are the same.
hipError_t hipStreamWaitValue64(hipStream_t stream, void* word, std::uint64_t value, unsigned flags,
                                std::uint64_t mask) {
  if (flags != hipStreamWaitValueGte || mask != ~std::uint64_t{0} || value >> 63 != 0) return hipErrorNotSupported;
  return call([&] { return cuStreamWaitValue64(cuda(stream), address(word), value, CU_STREAM_WAIT_VALUE_GEQ); });
}

hipError_t hipStreamWriteValue64(hipStream_t stream, void* word, std::uint64_t value, unsigned flags) {
  if (flags != 0) return hipErrorInvalidValue;
  return call([&] { return cuStreamWriteValue64(cuda(stream), address(word), value, CU_STREAM_WRITE_VALUE_DEFAULT); });
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  auto exchanged = static_cast<CUstreamCaptureMode>(*mode);
  const CUresult result = cuThreadExchangeStreamCaptureMode(&exchanged);
  *mode = static_cast<hipStreamCaptureMode>(exchanged);
  return hip(result);
}

hipError_t hipLaunchHostFunc(hipStream_t stream, void (*function)(void*), void* argument) {
  return call([&] { return cuLaunchHostFunc(cuda(stream), function, argument); });
}

hipError_t hipMalloc(void** data, std::size_t bytes) {
  return call([&] { return cuMemAlloc(reinterpret_cast<CUdeviceptr*>(data), bytes); });
}

hipError_t hipFree(void* data) {
  return call_at(data, [&] { return cuMemFree(address(data)); });
}

hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind, hipStream_t stream) {
  return call([&] { return cuMemcpyAsync(address(to), address(from), bytes, cuda(stream)); });
}

hipError_t hipMemsetAsync(void* data, int value, std::size_t bytes, hipStream_t stream) {
  return call([&] { return cuMemsetD8Async(address(data), static_cast<unsigned char>(value), bytes, cuda(stream)); });
}

hipError_t hipHostRegister(void* data, std::size_t bytes, unsigned flags) {
  static_assert(hipHostRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE &&
                hipHostRegisterMapped == CU_MEMHOSTREGISTER_DEVICEMAP &&
                hipHostRegisterIoMemory == CU_MEMHOSTREGISTER_IOMEMORY);
  return call([&] { return cuMemHostRegister(data, bytes, flags); });
}

hipError_t hipHostUnregister(void* data) {
  return call([&] { return cuMemHostUnregister(data); });
}

hipError_t hipHostGetDevicePointer(void** seen, void* data, unsigned flags) {
  return call([&] { return cuMemHostGetDevicePointer(reinterpret_cast<CUdeviceptr*>(seen), data, flags); });
}

/// HIP returns hipErrorInvalidValue for memory that it does not know.
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* at) {
  *attributes = {};
  CUmemorytype type{};
  if (about(at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, type) != CUDA_SUCCESS) return hipErrorInvalidValue;
  unsigned managed = 0;
  about(at, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed);
  about(at, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, attributes->device);
  const hipMemoryType kind = type == CU_MEMORYTYPE_DEVICE ? hipMemoryTypeDevice : hipMemoryTypeHost;
#if HIP_VERSION_MAJOR >= 6
  attributes->type = kind;
#else
  attributes->memoryType = kind;
#endif
  attributes->isManaged = static_cast<int>(managed);
  return hipSuccess;
}

hipError_t hipPointerGetAttribute(void* value, hipPointer_attribute which, hipDeviceptr_t at) {
  if (which != HIP_POINTER_ATTRIBUTE_BUFFER_ID) return hipErrorNotSupported;
  return hip(cuPointerGetAttribute(value, CU_POINTER_ATTRIBUTE_BUFFER_ID, address(at)));
}

/// HIP's says it of pinned memory of the host, too.
hipError_t hipMemGetAddressRange(hipDeviceptr_t* data, std::size_t* bytes, hipDeviceptr_t at) {
  if (const CUresult error = about(at, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, *data)) return hip(error);
  return hip(about(at, CU_POINTER_ATTRIBUTE_RANGE_SIZE, *bytes));
}

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* data) {
  CUipcMemHandle of{};
  static_assert(sizeof of.reserved == sizeof handle->reserved);
  const hipError_t result = call_at(data, [&] { return cuIpcGetMemHandle(&of, address(data)); });
  std::memcpy(handle->reserved, of.reserved, sizeof of.reserved);
  return result;
}

hipError_t hipIpcOpenMemHandle(void** data, hipIpcMemHandle_t handle, unsigned) {
  CUipcMemHandle of{};
  std::memcpy(of.reserved, handle.reserved, sizeof of.reserved);
  return call(
      [&] { return cuIpcOpenMemHandle(reinterpret_cast<CUdeviceptr*>(data), of, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS); });
}

hipError_t hipIpcCloseMemHandle(void* data) {
  return call_at(data, [&] { return cuIpcCloseMemHandle(address(data)); });
}

/// Code for an AMD GPU says nothing to this one: it is given the same kernels, compiled for CUDA.
hipError_t hipModuleLoadData(hipModule_t* module, const void*) {
  return call(
      [&] { return cuModuleLoadData(reinterpret_cast<CUmodule*>(module), sluice::device::cuda_kernels().data()); });
}

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  return call([&] {
    return cuModuleGetFunction(reinterpret_cast<CUfunction*>(function), reinterpret_cast<CUmodule>(module), name);
  });
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                                 unsigned threads_y, unsigned threads_z, unsigned shared_bytes, hipStream_t stream,
                                 void** parameters, void** extra) {
  return call([&] {
    return cuLaunchKernel(reinterpret_cast<CUfunction>(function), x, y, z, threads_x, threads_y, threads_z,
                          shared_bytes, cuda(stream), parameters, extra);
  });
}
