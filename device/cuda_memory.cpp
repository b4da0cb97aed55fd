// SPDX-License-Identifier: Apache-2.0
// CUDA's driver: memory of GPUs, how it goes to other processes, and host memory that GPUs reach.
#include <cstring>

#include "base/process.hpp"
#include "device/cuda.hpp"

namespace sluice::device {
namespace {

void* as_handle(const base::Fd& fd) noexcept { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd.get())); }
std::byte* pointer(CUdeviceptr address) noexcept { return reinterpret_cast<std::byte*>(address); }

}  // namespace

std::optional<GpuMemory> Cuda::find(const void* at) {
  if (about<CUmemorytype>(at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) != CU_MEMORYTYPE_DEVICE ||
      about<unsigned>(at, CU_POINTER_ATTRIBUTE_IS_MANAGED) != 0)
    return std::nullopt;
  CUdeviceptr data = 0;
  GpuMemory memory;
  memory.device = about<int>(at, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  const OnDevice current(*this, memory.device);
  check(calls_.cuMemGetAddressRange(&data, &memory.bytes, address(at)), "cuMemGetAddressRange");
  memory.data = pointer(data);
  // That of a piece of a pool may be the pool's: the next piece at its address would look like it.
  if (about<CUmemoryPool>(at, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) == nullptr)
    memory.id = about<unsigned long long>(at, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  return memory;
}

CUmemAllocationProp Cuda::shareable(int device) const {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = gpus_[static_cast<std::size_t>(device)].device;
  if (attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0)
    wanted.allocFlags.gpuDirectRDMACapable = 1;
  return wanted;
}

/// Memory that goes to other processes by a descriptor, where the driver has that; else as cudaMalloc's does.
GpuMemory Cuda::allocate(int device, std::size_t bytes) {
  const Apart apart(*this, device);
  if (attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0) {
    const CUmemAllocationProp wanted = shareable(device);
    std::size_t step = 0;
    check(calls_.cuMemGetAllocationGranularity(&step, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          "cuMemGetAllocationGranularity");
    bytes = (bytes + step - 1) / step * step;
    CUmemGenericAllocationHandle handle = 0;
    check(calls_.cuMemCreate(&handle, bytes, &wanted, 0), "cuMemCreate");
    return place(handle, device, bytes, device);
  }
  CUdeviceptr data = 0;
  check(calls_.cuMemAlloc(&data, bytes), "cuMemAlloc");
  return {device, pointer(data), bytes};
}

/// Maps it where all GPUs that can reach it do, for `device`. The handle is not needed after that. `owner`: the GPU
/// that it lies on; of one that is hidden from this process the driver names none that it has.
GpuMemory Cuda::place(CUmemGenericAllocationHandle handle, int device, std::size_t bytes, std::optional<int> owner) {
  const Released released(calls_, handle);
  CUdeviceptr at = 0;
  check(calls_.cuMemAddressReserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
  const GpuMemory memory{device, pointer(at), bytes, 0, GpuMemory::Got::mapped};
  const CUresult mapped = calls_.cuMemMap(at, bytes, 0, handle, 0);
  if (mapped != CUDA_SUCCESS) calls_.cuMemAddressFree(at, bytes);
  check(mapped, "cuMemMap");
  try {
    grant(at, bytes, owner);
  } catch (...) {
    unmap(memory);
    throw;
  }
  return memory;
}

CUmemAccessDesc Cuda::access_of(int device) const {
  CUmemAccessDesc all{};
  all.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  all.location.id = gpus_[static_cast<std::size_t>(device)].device;
  all.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return all;
}

void Cuda::grant(CUdeviceptr at, std::size_t bytes, std::optional<int> owner) {
  bool any = false;
  for (int device = 0; device < devices(); ++device) {
    const CUmemAccessDesc access = access_of(device);
    const CUresult result = calls_.cuMemSetAccess(at, bytes, &access, 1);
    any |= result == CUDA_SUCCESS;
    if (device == owner) check(result, "cuMemSetAccess");
  }
  if (!any) throw GpuError("cuMemSetAccess: no GPU of this process reaches the memory");
}

void Cuda::free(const GpuMemory& memory) noexcept {
  on_device(memory.device, [&] {
    if (memory.got != GpuMemory::Got::mapped) return check(calls_.cuMemFree(address(memory.data)), "cuMemFree");
    await_streams();  // kernels may use it still; unmapping does not wait for them
    unmap(memory);
  });
}

/// As cuCtxSynchronize does, which would end each capture of a stream of the GPU. In the relaxed mode a free is allowed
/// meanwhile (cuThreadExchangeStreamCaptureMode), and waits all the same (test: Gotchas.freeing_ends_no_capture).
void Cuda::await_streams() {
  CUdeviceptr probe = 0;
  const bool full = calls_.cuMemAlloc(&probe, 1) != CUDA_SUCCESS;
  if (full) check(calls_.cuCtxSynchronize(), "cuCtxSynchronize");
  if (!full) check(calls_.cuMemFree(probe), "cuMemFree");
}

void Cuda::unmap(const GpuMemory& memory) noexcept {
  on_device(memory.device, [&] {
    if (memory.got == GpuMemory::Got::pooled) return let_go(memory);
    if (memory.got == GpuMemory::Got::opened)
      return check(calls_.cuIpcCloseMemHandle(address(memory.data)), "cuIpcCloseMemHandle");
    check(calls_.cuMemUnmap(address(memory.data), memory.bytes), "cuMemUnmap");
    check(calls_.cuMemAddressFree(address(memory.data), memory.bytes), "cuMemAddressFree");
  });
}

std::optional<GpuExport> Cuda::share(const GpuMemory& memory) {
  const Apart apart(*this, memory.device);
  GpuExport share;
  GpuNames& names = share.names;
  std::memcpy(names.device.data(), gpus_.at(static_cast<std::size_t>(memory.device)).uuid.bytes, names.device.size());
  // In no other way: that would be the whole block that the piece lies in.
  if (auto* const pool = about<CUmemoryPool>(memory.data, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE); pool != nullptr)
    return share_piece(pool, memory, std::move(share));
  share.fd = descriptor_of(memory);
  const bool by_handle = name_handle(memory, names);
  if (!share.fd && !by_handle) return std::nullopt;
  return share;
}

base::Fd Cuda::descriptor_of(const GpuMemory& memory) const {
  int fd = -1;
  CUmemGenericAllocationHandle handle = 0;
  if (calls_.cuMemRetainAllocationHandle(&handle, memory.data) != CUDA_SUCCESS) return {};
  const CUresult result = calls_.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  calls_.cuMemRelease(handle);
  return result == CUDA_SUCCESS ? base::Fd(fd) : base::Fd();
}

bool Cuda::name_handle(const GpuMemory& memory, GpuNames& names) const {
  CUipcMemHandle ipc{};
  if (about<unsigned>(memory.data, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 0 ||
      calls_.cuIpcGetMemHandle(&ipc, address(memory.data)) != CUDA_SUCCESS)
    return false;
  static_assert(sizeof ipc.reserved == sizeof names.handle);
  std::memcpy(names.handle.data(), ipc.reserved, names.handle.size());
  return true;
}

/// First the pool, then what is in it. Nothing: the pool was not made to be shared, as a GPU's default pool is not.
std::optional<GpuExport> Cuda::share_piece(CUmemoryPool pool, const GpuMemory& memory, GpuExport share) {
  const std::lock_guard lock(pools_mutex_);
  int fd = -1;
  CUmemPoolPtrExportData piece{};
  if (calls_.cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
    return std::nullopt;
  share.fd = base::Fd(fd);
  if (calls_.cuMemPoolExportPointer(&piece, address(memory.data)) != CUDA_SUCCESS) return std::nullopt;
  PoolPiece& name = share.names.piece;
  name.process = base::process_token();
  name.at = reinterpret_cast<std::uintptr_t>(memory.data);
  static_assert(sizeof piece.reserved == sizeof name.data);
  std::memcpy(name.data.data(), piece.reserved, name.data.size());
  return share;
}

GpuMemory Cuda::map(const GpuExport& what, std::size_t bytes) {
  // By the GPU that this process uses, whosever the memory is.
  const int home = home_;
  const int device = home >= 0 ? home : ordinal(what.names.device).value_or(0);
  const Apart apart(*this, device);
  if (what.names.piece.at != 0) return import_piece(what, device, bytes);
  const bool by_handle = what.names.handle != GpuHandle{};
  if (what.fd) {
    try {
      CUmemGenericAllocationHandle handle = 0;
      check(
          calls_.cuMemImportFromShareableHandle(&handle, as_handle(what.fd), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "cuMemImportFromShareableHandle");
      return place(handle, device, bytes, ordinal(what.names.device));
    } catch (const GpuError&) {
      if (!by_handle) throw;
    }
  }
  CUipcMemHandle ipc{};
  std::memcpy(ipc.reserved, what.names.handle.data(), what.names.handle.size());
  CUdeviceptr at = 0;
  check(calls_.cuIpcOpenMemHandle(&at, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
  return {device, pointer(at), bytes, 0, GpuMemory::Got::opened};
}

GpuMemory Cuda::import_piece(const GpuExport& what, int device, std::size_t bytes) {
  std::unique_lock lock(pools_mutex_);
  const PoolPiece& name = what.names.piece;
  auto piece = imported_.end();
  let_go_.wait(lock, [&] {
    piece = std::find_if(imported_.begin(), imported_.end(), [&](const auto& one) { return one.name == name; });
    return piece == imported_.end() || piece->users > 0;
  });
  if (piece == imported_.end()) {
    Imported fresh{name, import_pool(what)};
    CUmemPoolPtrExportData data{};
    std::memcpy(data.reserved, name.data.data(), name.data.size());
    check(calls_.cuMemPoolImportPointer(&fresh.at, fresh.pool.get(), &data), "cuMemPoolImportPointer");
    piece = imported_.insert(imported_.end(), std::move(fresh));
  }
  ++piece->users;
  return {device, pointer(piece->at), bytes, 0, GpuMemory::Got::pooled};
}

/// With the mutex. Which pool it is the driver says, which gives one that is here already once more. Its owner could
/// not: the handle there may be that of a pool that was destroyed, and of which there is memory still.
std::shared_ptr<CUmemPoolHandle_st> Cuda::import_pool(const GpuExport& what) const {
  CUmemoryPool pool = nullptr;
  check(
      calls_.cuMemPoolImportFromShareableHandle(&pool, as_handle(what.fd), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemPoolImportFromShareableHandle");
  for (const Imported& one : imported_) {
    if (one.pool.get() == pool) return one.pool;
  }
  std::shared_ptr<CUmemPoolHandle_st> owned(pool, [this](CUmemoryPool last) { calls_.cuMemPoolDestroy(last); });
  let_in(pool, ordinal(what.names.device));
  return owned;
}

/// At first only the GPU that an imported pool lies on reaches it, whatever its owner has granted.
void Cuda::let_in(CUmemoryPool pool, std::optional<int> owner) const {
  bool any = owner.has_value();
  for (int device = 0; device < devices(); ++device) {
    if (device == owner) continue;
    // Where it cannot be, the call may succeed and the import of a piece fail. Of a GPU that is hidden nobody can say.
    int can = 1;
    const CUmemAccessDesc access = access_of(device);
    if (owner) calls_.cuDeviceCanAccessPeer(&can, access.location.id, access_of(*owner).location.id);
    any |= can != 0 && calls_.cuMemPoolSetAccess(pool, &access, 1) == CUDA_SUCCESS;
  }
  if (!any) throw GpuError("cuMemPoolSetAccess: no GPU of this process reaches the memory");
}

/// When it returns the owner may free the piece. In the order of a stream of ours: cuMemFree would wait for all others.
/// That stream may be held up all the same; until it is there other pieces come and go.
void Cuda::let_go(const GpuMemory& piece) {
  std::unique_lock lock(pools_mutex_);
  const auto is = [&](const Imported& one) { return one.at == address(piece.data) && one.users > 0; };
  const auto found = std::find_if(imported_.begin(), imported_.end(), is);
  if (found == imported_.end()) throw GpuError("memory of a pool that is not imported here");
  if (--found->users > 0) return;
  const auto forget = [&] {
    if (!lock.owns_lock()) lock.lock();
    imported_.erase(found);  // and with the last piece the pool, which may be imported again from now on
    let_go_.notify_all();
  };
  try {
    aside(piece.device, [&](void* stream) {
      check(calls_.cuMemFreeAsync(found->at, static_cast<CUstream>(stream)), "cuMemFreeAsync");
      lock.unlock();
    });
  } catch (...) {
    forget();
    throw;
  }
  forget();
}

std::size_t Cuda::reached(const void* at) {
  const bool known = about<CUmemorytype>(at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_HOST ||
                     about<unsigned>(at, CU_POINTER_ATTRIBUTE_IS_MANAGED) != 0;
  if (!known) return 0;
  const auto start = about<CUdeviceptr>(at, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  const auto bytes = about<std::size_t>(at, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  return start <= address(at) && address(at) < start + bytes ? start + bytes - address(at) : 0;
}

void Cuda::reach(void* pages, std::size_t bytes) {
  const Apart apart(*this, current_device());
  check(calls_.cuMemHostRegister(pages, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        "cuMemHostRegister");
}

void* Cuda::reach_registers(void* pages, std::size_t bytes) {
  const Apart apart(*this, current_device());
  constexpr unsigned kRegisters =
      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY;
  check(calls_.cuMemHostRegister(pages, bytes, kRegisters), "cuMemHostRegister");
  CUdeviceptr at = 0;
  check(calls_.cuMemHostGetDevicePointer(&at, pages, 0), "cuMemHostGetDevicePointer");
  return pointer(at);
}

void Cuda::give_up(void* pages) noexcept {
  on_device(std::max(home_.load(), 0), [&] { check(calls_.cuMemHostUnregister(pages), "cuMemHostUnregister"); });
}

}  // namespace sluice::device
