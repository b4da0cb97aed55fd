// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation. Memory is there from its allocation's turn in the stream to its free's; nothing is pooled.
#include <fcntl.h>

#include <cstring>

#include "tests/emucuda/driver.hpp"
#include "tests/emucuda/physical.hpp"

using namespace emucuda;

namespace {

static_assert(sizeof(Ticket) <= sizeof(CUmemPoolPtrExportData));

/// Enough to carry a label: what a shared pool's descriptor refers to.
constexpr std::size_t kNameBytes = 4096;

CUresult add_pool(int device, unsigned handle_types, std::shared_ptr<Block> name, CUmemoryPool* handle) {
  const bool imported = name != nullptr;
  if (!imported && handle_types != 0) name = Block::create(kNameBytes, driver().machine_ordinal(device), handle_types);
  auto pool = std::make_shared<Pool>(device, handle_types, imported, std::uint64_t{1} << device, name);
  driver().pools.add(pool, handle);
  return CUDA_SUCCESS;
}

/// Made when it is first asked for.
CUmemoryPool default_pool(int device) {
  static std::mutex mutex;
  static std::map<int, CUmemoryPool>& pools = *new std::map<int, CUmemoryPool>;
  const std::lock_guard lock(mutex);
  CUmemoryPool& pool = pools[device];
  if (!pool) add_pool(device, 0, nullptr, &pool);
  return pool;
}

CUresult give_default_pool(CUmemoryPool* pool, int device) {
  if (const CUresult error = use_driver()) return error;
  if (!driver().is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  *pool = default_pool(device);
  return CUDA_SUCCESS;
}

CUresult use_pool(CUmemoryPool handle, std::shared_ptr<Pool>& pool) {
  if (const CUresult error = use_driver()) return error;
  pool = driver().pools.find(handle);
  return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

RangePtr of_pool(CUdeviceptr pointer) {
  const RangePtr range = driver().addresses.at(pointer);
  return range && range->kind == Kind::pool && range->base == pointer ? range : nullptr;
}

}  // namespace

extern "C" {

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  if (const CUresult error = use_driver()) return error;
  if (!handle || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned kTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const auto types = static_cast<unsigned>(properties->handleTypes);
  if ((types & ~kTypes) != 0 || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!driver().is_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  return add_pool(properties->location.id, types, nullptr, handle);
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  std::shared_ptr<Pool> pool;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (handle == default_pool(pool->device)) return CUDA_ERROR_INVALID_VALUE;
  driver().pools.take(handle);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) { return give_default_pool(pool, device); }
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) { return give_default_pool(pool, device); }

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t count) {
  std::shared_ptr<Pool> pool;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (!access) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (!driver().is_device(access[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const std::uint64_t bit = std::uint64_t{1} << access[i].location.id;
    access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? pool->access.fetch_or(bit) : pool->access.fetch_and(~bit);
  }
  for (const RangePtr& range : driver().addresses.all()) {
    if (range->kind == Kind::pool && range->pool_handle == handle) range->access = pool->access.load();
  }
  return CUDA_SUCCESS;
}

/// A threshold changes nothing here, where all memory goes back at once.
CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute, void* value) {
  std::shared_ptr<Pool> pool;
  if (const CUresult error = use_pool(handle, pool)) return error;
  return value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool handle, CUstream stream_handle) {
  std::shared_ptr<Pool> pool;
  StreamPtr stream;
  if (const CUresult error = use_stream(stream_handle, stream, IfCapturing::refuse)) return error;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (!pointer || bytes == 0 || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  auto block = Block::create(bytes, driver().machine_ordinal(pool->device), pool->handle_types);
  const RangePtr range = block ? driver().place(Kind::pool, block, stream->context, pool->device) : nullptr;
  if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
  range->pool_handle = handle;
  range->access = pool->access.load();
  range->live = false;
  driver().addresses.add(range);
  stream->context.submit(stream, [range](Turn&) {
    range->live = true;
    return CUDA_SUCCESS;
  });
  *pointer = range->base;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream_handle) {
  StreamPtr stream;
  if (const CUresult error = use_stream(stream_handle, stream, IfCapturing::refuse)) return error;
  return cuMemAllocFromPoolAsync(pointer, bytes, default_pool(stream->context.device()), stream_handle);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream_handle) {
  StreamPtr stream;
  if (const CUresult error = use_stream(stream_handle, stream, IfCapturing::refuse)) return error;
  const RangePtr range = of_pool(pointer);
  if (!range || range->freeing.exchange(true)) return CUDA_ERROR_INVALID_VALUE;
  stream->context.submit(stream, [range](Turn&) {
    driver().displace(*range);
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

// --- between processes -----------------------------------------------------------------------------------------------

CUresult cuMemPoolExportToShareableHandle(void* descriptor, CUmemoryPool handle, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  std::shared_ptr<Pool> pool;
  if (const CUresult error = use_pool(handle, pool)) return error;
  const bool allowed = (pool->handle_types & static_cast<unsigned>(type)) != 0 && !pool->imported;
  if (!descriptor || flags != 0 || !allowed || !pool->name) return CUDA_ERROR_INVALID_VALUE;
  const int copy = ::fcntl(pool->name->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(descriptor) = copy;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* handle, void* descriptor, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  if (const CUresult error = use_driver()) return error;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!handle || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto name = Block::from_descriptor(static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor)));
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const auto device = driver().device_of_machine_ordinal(name->label().device);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  return add_pool(*device, name->label().handle_types, name, handle);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  const RangePtr range = of_pool(pointer);
  if (!data || !range || range->block->label().handle_types == 0) return CUDA_ERROR_INVALID_VALUE;
  const Ticket ticket = ticket_of(*range->block);
  std::memset(data, 0, sizeof(*data));
  std::memcpy(data, &ticket, sizeof(ticket));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
  std::shared_ptr<Pool> pool;
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (!pointer || !data || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
  Ticket ticket{};
  std::memcpy(&ticket, data, sizeof(ticket));
  auto block = open_ticket(ticket);
  const RangePtr range = block ? driver().place(Kind::pool, block, *context, pool->device) : nullptr;
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  range->pool_handle = handle;
  range->access = pool->access.load();
  driver().addresses.add(range);
  *pointer = range->base;
  return CUDA_SUCCESS;
}
}
