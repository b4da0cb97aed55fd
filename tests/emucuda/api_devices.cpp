// SPDX-License-Identifier: Apache-2.0
// Start, devices and what they say of themselves.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "tests/emucuda/driver.hpp"
#include "tests/emucuda/start.hpp"

namespace emucuda {
namespace {

constexpr std::size_t kTotalMemory = std::size_t{16} << 30;
constexpr int kBusOfFirst = 0x10;

/// Identical in every process of a machine until it is started again.
std::string machine_id() {
  std::string id = "none";
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

std::string bus_id(int device) {
  char text[32];
  std::snprintf(text, sizeof(text), "0000:%02X:00.0",
                static_cast<unsigned>(kBusOfFirst + driver().machine_ordinal(device)) & 0xFF);
  return text;
}

CUresult copy_text(const std::string& text, char* to, int bytes) {
  if (!to || bytes < 1) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(to, static_cast<std::size_t>(bytes), "%s", text.c_str());
  return CUDA_SUCCESS;
}

int limit(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 232448;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1000000;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 50 << 20;
    default: return 0;
  }
}

/// Yes or no, and the masks; 0 for all that is not known or not emulated (dma-buf, GPUDirect RDMA, multicast, fabric).
int ability(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: return CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: return driver().settings().word_operations ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES: return driver().settings().can_flush ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
      return driver().settings().can_flush ? CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS : 0;
    default: return 0;
  }
}

}  // namespace
}  // namespace emucuda

using namespace emucuda;

extern "C" {

CUresult cuInit(unsigned int flags) {
  if (in_stream_function()) return CUDA_ERROR_NOT_PERMITTED;
  return flags == 0 ? driver().initialise() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = emucuda::version();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (const CUresult error = use_driver()) return error;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = driver().devices();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult error = use_device(ordinal)) return error;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  if (const CUresult error = use_device(device)) return error;
  return copy_text("Emulated GPU", name, bytes);
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  if (const CUresult error = use_device(device)) return error;
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t machine = std::hash<std::string>()(machine_id());
  const auto ordinal = static_cast<std::uint64_t>(driver().machine_ordinal(device));
  std::memcpy(uuid->bytes, &machine, sizeof(machine));
  std::memcpy(uuid->bytes + sizeof(machine), &ordinal, sizeof(ordinal));
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  if (const CUresult error = use_device(device)) return error;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  *bytes = kTotalMemory;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
  std::size_t used = 0;
  for (const RangePtr& range : driver().addresses.all()) {
    if (range->device == context->device() && !range->on_host()) used += range->bytes;
  }
  *total = kTotalMemory;
  *free = kTotalMemory - std::min(used, kTotalMemory);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int bytes, CUdevice device) {
  if (const CUresult error = use_device(device)) return error;
  return copy_text(bus_id(device), text, bytes);
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  if (const CUresult error = use_driver()) return error;
  if (!device || !text) return CUDA_ERROR_INVALID_VALUE;
  for (int candidate = 0; candidate < driver().devices(); ++candidate) {
    if (bus_id(candidate) != text) continue;
    *device = candidate;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (const CUresult error = use_device(device)) return error;
  if (!value || attribute < 1) return CUDA_ERROR_INVALID_VALUE;
  *value = limit(attribute) + ability(attribute);
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) *value = kBusOfFirst + driver().machine_ordinal(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  if (const CUresult error = use_device(device)) return error;
  if (const CUresult error = use_device(peer)) return error;
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  *can = device != peer && driver().settings().peers ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
  if (const CUresult error = use_device(device)) return error;
  if (const CUresult error = use_device(peer)) return error;
  if (!value || device == peer) return CUDA_ERROR_INVALID_VALUE;
  const bool yes = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
                   (attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED && driver().settings().native_atomics);
  *value = yes && driver().settings().peers ? 1 : 0;
  return CUDA_SUCCESS;
}
}
