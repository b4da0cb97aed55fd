// SPDX-License-Identifier: Apache-2.0
// The functions by name, as cuGetProcAddress gives them: without the suffixes that the header's macros add.
#include <array>
#include <cstring>

#include "tests/emucuda/cuda_api.hpp"
#include "tests/emucuda/start.hpp"

namespace {

struct Row {
  const char* name;
  void* function;
  int since;  // an older version would be another function than the header's; 0: the function has one version
};

// clang-format off
#define ROW(function, since) Row{#function, reinterpret_cast<void*>(&(function)), (since)}

const std::array kRows = {
    ROW(cuCtxDisablePeerAccess, 0),
    ROW(cuCtxEnablePeerAccess, 0),
    ROW(cuCtxGetCurrent, 0),
    ROW(cuCtxGetDevice, 0),
    ROW(cuCtxGetFlags, 0),
    ROW(cuCtxGetStreamPriorityRange, 0),
    ROW(cuCtxPopCurrent, 0),
    ROW(cuCtxPushCurrent, 0),
    ROW(cuCtxSetCurrent, 0),
    ROW(cuCtxSynchronize, 0),
    ROW(cuDeviceCanAccessPeer, 0),
    ROW(cuDeviceGet, 0),
    ROW(cuDeviceGetAttribute, 0),
    ROW(cuDeviceGetByPCIBusId, 0),
    ROW(cuDeviceGetCount, 0),
    ROW(cuDeviceGetDefaultMemPool, 0),
    ROW(cuDeviceGetMemPool, 0),
    ROW(cuDeviceGetName, 0),
    ROW(cuDeviceGetP2PAttribute, 0),
    ROW(cuDeviceGetPCIBusId, 0),
    ROW(cuDeviceGetUuid, 0),
    ROW(cuDevicePrimaryCtxGetState, 0),
    ROW(cuDevicePrimaryCtxRelease, 0),
    ROW(cuDevicePrimaryCtxRetain, 0),
    ROW(cuDevicePrimaryCtxSetFlags, 0),
    ROW(cuDeviceSetMemPool, 0),
    ROW(cuDeviceTotalMem, 0),
    ROW(cuDriverGetVersion, 0),
    ROW(cuEventCreate, 0),
    ROW(cuEventDestroy, 0),
    ROW(cuEventElapsedTime, 12080),
    ROW(cuEventQuery, 0),
    ROW(cuEventRecord, 0),
    ROW(cuEventSynchronize, 0),
    ROW(cuFuncGetAttribute, 0),
    ROW(cuFuncSetAttribute, 0),
    ROW(cuGetErrorName, 0),
    ROW(cuGetErrorString, 0),
    ROW(cuGetProcAddress, 12000),
    ROW(cuGraphDestroy, 0),
    ROW(cuGraphExecDestroy, 0),
    ROW(cuGraphGetNodes, 0),
    ROW(cuGraphInstantiate, 12000),
    ROW(cuGraphInstantiateWithFlags, 11040),
    ROW(cuGraphLaunch, 0),
    ROW(cuInit, 0),
    ROW(cuIpcCloseMemHandle, 0),
    ROW(cuIpcGetMemHandle, 0),
    ROW(cuIpcOpenMemHandle, 0),
    ROW(cuLaunchHostFunc, 0),
    ROW(cuLaunchKernel, 0),
    ROW(cuLaunchKernelEx, 11060),
    ROW(cuMemAddressFree, 0),
    ROW(cuMemAddressReserve, 0),
    ROW(cuMemAlloc, 0),
    ROW(cuMemAllocAsync, 11020),
    ROW(cuMemAllocFromPoolAsync, 11020),
    ROW(cuMemAllocHost, 0),
    ROW(cuMemCreate, 0),
    ROW(cuMemExportToShareableHandle, 0),
    ROW(cuMemFree, 0),
    ROW(cuMemFreeAsync, 11020),
    ROW(cuMemFreeHost, 0),
    ROW(cuMemGetAccess, 0),
    ROW(cuMemGetAddressRange, 0),
    ROW(cuMemGetAllocationGranularity, 0),
    ROW(cuMemGetAllocationPropertiesFromHandle, 0),
    ROW(cuMemGetHandleForAddressRange, 11070),
    ROW(cuMemGetInfo, 0),
    ROW(cuMemHostAlloc, 0),
    ROW(cuMemHostGetDevicePointer, 0),
    ROW(cuMemHostGetFlags, 0),
    ROW(cuMemHostRegister, 0),
    ROW(cuMemHostUnregister, 0),
    ROW(cuMemImportFromShareableHandle, 0),
    ROW(cuMemMap, 0),
    ROW(cuMemPoolCreate, 11020),
    ROW(cuMemPoolDestroy, 0),
    ROW(cuMemPoolExportPointer, 0),
    ROW(cuMemPoolExportToShareableHandle, 0),
    ROW(cuMemPoolGetAccess, 0),
    ROW(cuMemPoolImportFromShareableHandle, 0),
    ROW(cuMemPoolImportPointer, 0),
    ROW(cuMemPoolSetAccess, 0),
    ROW(cuMemPoolSetAttribute, 0),
    ROW(cuMemRelease, 0),
    ROW(cuMemRetainAllocationHandle, 0),
    ROW(cuMemSetAccess, 0),
    ROW(cuMemUnmap, 0),
    ROW(cuMemcpy, 0),
    ROW(cuMemcpyAsync, 0),
    ROW(cuMemcpyDtoD, 0),
    ROW(cuMemcpyDtoDAsync, 0),
    ROW(cuMemcpyDtoH, 0),
    ROW(cuMemcpyDtoHAsync, 0),
    ROW(cuMemcpyHtoD, 0),
    ROW(cuMemcpyHtoDAsync, 0),
    ROW(cuMemsetD32, 0),
    ROW(cuMemsetD32Async, 0),
    ROW(cuMemsetD8, 0),
    ROW(cuMemsetD8Async, 0),
    ROW(cuModuleGetFunction, 0),
    ROW(cuModuleGetGlobal, 0),
    ROW(cuModuleLoadData, 0),
    ROW(cuModuleLoadDataEx, 0),
    ROW(cuModuleUnload, 0),
    ROW(cuOccupancyMaxActiveBlocksPerMultiprocessor, 0),
    ROW(cuPointerGetAttribute, 0),
    ROW(cuPointerGetAttributes, 0),
    ROW(cuPointerSetAttribute, 0),
    ROW(cuStreamBatchMemOp, 11070),
    ROW(cuStreamBeginCapture, 10010),
    ROW(cuStreamCreate, 0),
    ROW(cuStreamCreateWithPriority, 0),
    ROW(cuStreamDestroy, 0),
    ROW(cuStreamEndCapture, 0),
    Row{"cuStreamGetCaptureInfo", reinterpret_cast<void*>(&cuStreamGetCaptureInfo_v2), 11030},
    ROW(cuStreamGetCaptureInfo, 12030),
    ROW(cuStreamGetCtx, 0),
    ROW(cuStreamGetDevice, 12080),
    ROW(cuStreamGetFlags, 0),
    ROW(cuStreamGetId, 0),
    ROW(cuStreamGetPriority, 0),
    ROW(cuStreamIsCapturing, 0),
    ROW(cuStreamQuery, 0),
    ROW(cuStreamSynchronize, 0),
    ROW(cuStreamWaitEvent, 0),
    ROW(cuStreamWaitValue32, 11070),
    ROW(cuStreamWaitValue64, 11070),
    ROW(cuStreamWriteValue32, 11070),
    ROW(cuStreamWriteValue64, 11070),
    ROW(cuThreadExchangeStreamCaptureMode, 0),
};
// clang-format on

#undef ROW

}  // namespace

extern "C" {

CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* result) {
  CUdriverProcAddressQueryResult unused{};
  if (!result) result = &unused;
  *result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  // There are no variants for programs whose default stream is per thread.
  if (!name || !function || (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  // The newest row that `version` includes; none if `version` is newer than the driver's.
  for (const Row& row : kRows) {
    if (std::strcmp(row.name, name) != 0) continue;
    if (!*function) *result = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (version < row.since || version > emucuda::version()) continue;
    *result = CU_GET_PROC_ADDRESS_SUCCESS;
    *function = row.function;
  }
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#undef cuGetProcAddress
/// The first version of it, which tells no more than yes or no.
__attribute__((visibility("default"))) CUresult cuGetProcAddress(const char* name, void** function, int version,
                                                                 cuuint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
}
