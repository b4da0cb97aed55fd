// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation. Memory is there from its allocation's turn in the stream to its free's; nothing is pooled.
#include <fcntl.h>

#include <cstring>

#include "tests/emucuda/driver.hpp"
#include "tests/emucuda/physical.hpp"

using namespace emucuda;

namespace {

/// Identifies a piece of a pool in other processes.
struct PieceTicket {
  Ticket memory;
  std::uint64_t pool;  // the inode of its name
};
static_assert(sizeof(PieceTicket) <= sizeof(CUmemPoolPtrExportData));

/// Enough to carry a label: what a shared pool's descriptor refers to.
constexpr std::size_t kNameBytes = 4096;

CUresult add_pool(int device, unsigned handle_types, CUmemoryPool* handle) {
  std::shared_ptr<Block> name;
  if (handle_types != 0) name = Block::create(kNameBytes, driver().machine_ordinal(device), handle_types);
  const auto pool = std::make_shared<Pool>(device, handle_types, false, name);
  driver().settings().pools_recycle ? driver().pools.add_again(pool, handle) : driver().pools.add(pool, handle);
  return CUDA_SUCCESS;
}

/// The pools of a device.
struct Own {
  CUmemoryPool standard = nullptr;  // made at its first use
  CUmemoryPool current = nullptr;   // what cuMemAllocAsync takes from; null: the standard one
};

std::mutex own_mutex;

/// With the mutex.
Own& own_pools(int device) {
  static std::map<int, Own>& all = *new std::map<int, Own>;
  Own& own = all[device];
  if (!own.standard) add_pool(device, 0, &own.standard);
  return own;
}

CUmemoryPool current_pool(int device) {
  const std::lock_guard lock(own_mutex);
  const Own& own = own_pools(device);
  return own.current ? own.current : own.standard;
}

CUresult check_device(const void* asked, int device) {
  if (const CUresult error = use_driver()) return error;
  if (!driver().is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return asked ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

/// All of the list, before any of it is done. Its own device keeps its access.
CUresult check_access(const Pool& pool, const CUmemAccessDesc* access, std::size_t count) {
  if (!access || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const bool all = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!driver().is_device(access[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    if (!all && pool.device == access[i].location.id) return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

bool imported_already(const Ticket& ticket) {
  for (const RangePtr& range : driver().addresses.all()) {
    if (range->imported && range->block->inode() == ticket.inode) return true;
  }
  return false;
}

}  // namespace

extern "C" {

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  if (const CUresult error = use_driver()) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  if (!handle || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned kTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const auto types = static_cast<unsigned>(properties->handleTypes);
  if ((types & ~kTypes) != 0 || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!driver().is_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  return add_pool(properties->location.id, types, handle);
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  std::shared_ptr<Pool> pool;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  if (pool->device && !pool->imported) {
    const std::lock_guard lock(own_mutex);
    Own& own = own_pools(*pool->device);
    if (handle == own.standard) return CUDA_ERROR_INVALID_VALUE;
    if (handle == own.current) own.current = nullptr;
  }
  driver().pools.take(handle);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  if (const CUresult error = check_device(pool, device)) return error;
  const std::lock_guard lock(own_mutex);
  *pool = own_pools(device).standard;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  if (const CUresult error = check_device(pool, device)) return error;
  *pool = current_pool(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  std::shared_ptr<Pool> pool;
  if (const CUresult error = check_device(handle, device)) return error;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (pool->imported || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(own_mutex);
  own_pools(device).current = handle;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t count) {
  std::shared_ptr<Pool> pool;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (const CUresult error = check_access(*pool, access, count)) return error;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << access[i].location.id;
    access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? pool->access.fetch_or(bit) : pool->access.fetch_and(~bit);
  }
  for (const RangePtr& range : driver().addresses.all()) {
    if (range->kind == Kind::pool && range->pool_handle == handle) range->access = pool->access.load();
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  std::shared_ptr<Pool> pool;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!driver().is_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  const bool yes = (pool->access.load() >> location->id & 1) != 0;
  *flags = yes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
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
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  if (!pointer || bytes == 0 || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  auto block = Block::create(bytes, driver().machine_ordinal(*pool->device), pool->handle_types);
  const RangePtr range = block ? driver().place(Kind::pool, block, stream->context, *pool->device) : nullptr;
  if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
  range->pool_handle = handle;
  range->access = pool->access.load();
  range->live = false;
  driver().addresses.add(range);
  stream->context.submit(stream, [range](Turn&) {
    range->live = true;
    range->block->come_alive();
    return CUDA_SUCCESS;
  });
  *pointer = range->base;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream_handle) {
  StreamPtr stream;
  if (const CUresult error = use_stream(stream_handle, stream, IfCapturing::refuse)) return error;
  return cuMemAllocFromPoolAsync(pointer, bytes, current_pool(stream->context.device()), stream_handle);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream_handle) {
  StreamPtr stream;
  if (const CUresult error = use_stream(stream_handle, stream, IfCapturing::refuse)) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  const RangePtr range = of_pool(pointer);
  if (!range || range->freeing.exchange(true)) return CUDA_ERROR_INVALID_VALUE;
  stream->context.submit(stream, [range](Turn&) {
    driver().displace_of_pool("cuMemFreeAsync", *range);
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

// --- between processes -----------------------------------------------------------------------------------------------

CUresult cuMemPoolExportToShareableHandle(void* descriptor, CUmemoryPool handle, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  std::shared_ptr<Pool> pool;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (const CUresult error = driver().captures.use_unsafely()) return error;
  const bool allowed = (pool->handle_types & static_cast<unsigned>(type)) != 0 && !pool->imported;
  if (!descriptor || flags != 0 || !allowed || !pool->name) return CUDA_ERROR_INVALID_VALUE;
  const int copy = ::fcntl(pool->name->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(descriptor) = copy;
  pool->exported = true;
  return CUDA_SUCCESS;
}

/// A process has a pool once, however often it imports it, and loses it when it destroys it once.

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* handle, void* descriptor, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  if (const CUresult error = use_driver()) return error;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (!handle || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!driver().settings().imports) return CUDA_ERROR_NOT_PERMITTED;
  auto name = Block::from_descriptor(static_cast<int>(reinterpret_cast<std::intptr_t>(descriptor)));
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const auto is = [&](const Pool& pool) { return pool.imported && pool.name->inode() == name->inode(); };
  if (const std::uintptr_t known = driver().pools.handle_if(is)) {
    *handle = reinterpret_cast<CUmemoryPool>(known);
    return CUDA_SUCCESS;
  }
  const auto device = driver().device_of_machine_ordinal(name->label().device);
  driver().pools.add(std::make_shared<Pool>(device, name->label().handle_types, true, name), handle);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) {
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  const RangePtr range = of_pool(pointer);
  if (!data || !range || range->imported || range->freeing) return CUDA_ERROR_INVALID_VALUE;
  const auto pool = driver().pools.find(range->pool_handle);
  if (!pool || !pool->exported) return CUDA_ERROR_INVALID_VALUE;  // first the pool, then what is in it
  const PieceTicket ticket{ticket_of(*range->block), pool->name->inode()};
  std::memset(data, 0, sizeof(*data));
  std::memcpy(data, &ticket, sizeof(ticket));
  return CUDA_SUCCESS;
}

/// A second import is refused: drivers differ in what they make of it, and in what its first free does.
CUresult cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
  std::shared_ptr<Pool> pool;
  Context* context = nullptr;
  if (const CUresult error = use_context(context)) return error;
  if (const CUresult error = use_pool(handle, pool)) return error;
  if (!pointer || !data || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
  PieceTicket ticket{};
  std::memcpy(&ticket, data, sizeof(ticket));
  if (ticket.pool != pool->name->inode()) return CUDA_ERROR_INVALID_VALUE;
  if (imported_already(ticket.memory)) return CUDA_ERROR_ALREADY_MAPPED;
  auto block = open_ticket(ticket.memory);
  // A device that CUDA_VISIBLE_DEVICES hides has no ordinal; the memory then looks like the opener's.
  const int device = pool->device.value_or(context->device());
  const RangePtr range = block ? driver().place(Kind::pool, block, *context, device) : nullptr;
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  block->hold();
  range->imported = true;
  range->pool_handle = handle;
  range->access = pool->access.load();
  driver().addresses.add(range);
  *pointer = range->base;
  return CUDA_SUCCESS;
}
}
