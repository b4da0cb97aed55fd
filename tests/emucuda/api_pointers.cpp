// SPDX-License-Identifier: Apache-2.0
// Attributes of pointers.
#include <cstring>

#include "tests/emucuda/driver.hpp"
#include "tests/emucuda/physical.hpp"

using namespace emucuda;

namespace {

template <class T>
CUresult give(void* to, T value) {
  *static_cast<T*>(to) = value;
  return CUDA_SUCCESS;
}

unsigned handle_types(const Range& range) {
  return range.block && (range.kind == Kind::mapped || range.kind == Kind::pool) ? range.block->label().handle_types
                                                                                 : 0;
}

unsigned long long id_of(const Range& range) {
  if (range.kind != Kind::pool || !driver().settings().pools_recycle) return range.id;
  return reinterpret_cast<std::uintptr_t>(range.pool_handle);
}

/// True if kernels in the calling thread's current context reach the range.
bool kernels_reach(const Range& range) {
  Context* context = nullptr;
  return use_context(context) == CUDA_SUCCESS && driver().may_reach(range, context->device());
}

/// Attributes of memory that CUDA knows.
CUresult attribute_of(const Range& range, CUpointer_attribute attribute, CUdeviceptr pointer, void* data) {
  const auto type = static_cast<unsigned>(range.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
  // Device memory has no host pointer, so that no program reads it through one.
  const CUdeviceptr host = range.on_host() ? pointer : 0;
  const auto flag = [&](bool yes) { return give(data, static_cast<unsigned>(yes ? 1 : 0)); };
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(data, range.kind == Kind::mapped || range.kind == Kind::pool ? nullptr : range.context->handle());
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return give(data, type);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return kernels_reach(range) ? give(data, pointer) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: return range.on_host() ? give(data, host) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return flag(range.sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return give(data, id_of(range));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return flag(false);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return give(data, range.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return flag(range.kind == Kind::device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return give(data, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return give(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED: return flag(true);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give(data, static_cast<unsigned long long>(handle_types(range)));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return give(data, range.pool_handle);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

std::size_t attribute_bytes(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED: return sizeof(int);
    default: return sizeof(std::uint64_t);
  }
}

/// For memory that CUDA does not know: zeros, and no device. The pointer itself is what the host would use.
void attribute_of_nothing(CUpointer_attribute attribute, void* data) {
  std::memset(data, 0, attribute_bytes(attribute));
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) give(data, -2);
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  if (const CUresult error = use_driver()) return error;
  const RangePtr range = driver().addresses.at(pointer);
  if (!data || !range) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(*range, attribute, pointer, data);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer) {
  if (const CUresult error = use_driver()) return error;
  if (count == 0 || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  const RangePtr range = driver().addresses.at(pointer);
  for (unsigned i = 0; i < count; ++i) {
    const bool known = range && attribute_of(*range, attributes[i], pointer, data[i]) == CUDA_SUCCESS;
    if (!known) attribute_of_nothing(attributes[i], data[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  const RangePtr range = driver().addresses.at(pointer);
  if (!value || !range || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  // Memory of the host and of pools lacks this attribute.
  if (range->on_host() || range->kind == Kind::pool) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned yes = 0;
  std::memcpy(&yes, value, sizeof(yes));
  range->sync_memops = yes != 0;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  const RangePtr range = driver().addresses.at(pointer);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = range->base;
  if (bytes) *bytes = range->bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetHandleForAddressRange(void*, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long) {
  if (const CUresult error = use_driver()) return error;
  return CUDA_ERROR_NOT_SUPPORTED;  // no dma-buf
}
}
