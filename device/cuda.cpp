// SPDX-License-Identifier: Apache-2.0
// CUDA's driver: memory of GPUs, its handles for other processes, and host memory that GPUs reach.
#include <algorithm>
#include <bit>
#include <condition_variable>
#include <list>
#include <memory>
#include <optional>

#include "base/fork.hpp"
#include "base/process.hpp"
#include "device/cuda_streams.hpp"

namespace sluice::device {
namespace {

void* as_handle(const base::Fd& fd) noexcept { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd.get())); }
std::byte* pointer(CUdeviceptr address) noexcept { return reinterpret_cast<std::byte*>(address); }

class Cuda final : public CudaStreams {
 public:
  bool kernels_reach(const void* at) override {
    return at != nullptr && about<CUdeviceptr>(at, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == address(at);
  }

  /// Over a link without native atomics, a GPU's atomic in another's memory is a read and a write.
  bool atomic_in(int device, const GpuId& of) override {
    if (id_of(device) == of) return true;
    const auto owner = find_device(of);
    int native = 0;
    return owner &&
           calls_.DeviceGetP2PAttribute(&native, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device_handle(device),
                                        device_handle(*owner)) == CUDA_SUCCESS &&
           native != 0;
  }

  std::optional<GpuMemory> find(const void* at) override {
    if (about<CUmemorytype>(at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) != CU_MEMORYTYPE_DEVICE ||
        about<unsigned>(at, CU_POINTER_ATTRIBUTE_IS_MANAGED) != 0)
      return std::nullopt;
    CUdeviceptr data = 0;
    GpuMemory memory;
    memory.device = about<int>(at, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
    const OnDevice current(*this, memory.device);
    require(calls_.MemGetAddressRange, &data, &memory.bytes, address(at));
    memory.data = pointer(data);
    // A piece of a pool may have the pool's id, so that the next piece at its address would look the same.
    if (about<CUmemoryPool>(at, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) == nullptr)
      memory.id = about<unsigned long long>(at, CU_POINTER_ATTRIBUTE_BUFFER_ID);
    return memory;
  }

  /// Allocates memory that other processes get by a descriptor, if the driver supports that; else memory like
  /// cudaMalloc's.
  GpuMemory allocate(int device, std::size_t bytes) override {
    const Apart apart(*this, device);
    if (attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) == 0) {
      CUdeviceptr data = 0;
      require(calls_.MemAlloc, &data, bytes);
      return {device, pointer(data), bytes};
    }
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    wanted.location = access_of(device).location;
    if (attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0)
      wanted.allocFlags.gpuDirectRDMACapable = 1;
    std::size_t step = 0;
    require(calls_.MemGetAllocationGranularity, &step, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    bytes = (bytes + step - 1) / step * step;
    CUmemGenericAllocationHandle handle = 0;
    require(calls_.MemCreate, &handle, bytes, &wanted, 0);
    return place(handle, device, bytes, device);
  }

  void free(const GpuMemory& memory) noexcept override {
    on_device(memory.device, [&] {
      if (memory.got != GpuMemory::Got::mapped) return require(calls_.MemFree, address(memory.data));
      // Kernels may still use the memory, and unmapping does not wait for them. cuCtxSynchronize does, but ends each
      // capture of a stream of the GPU. In the relaxed mode a capture allows a free
      // (cuThreadExchangeStreamCaptureMode), which waits for all streams too (test: Gotchas.freeing_ends_no_capture).
      CUdeviceptr probe = 0;
      const bool full = calls_.MemAlloc(&probe, 1) != CUDA_SUCCESS;
      if (full) require(calls_.CtxSynchronize);
      if (!full) require(calls_.MemFree, probe);
      unmap(memory);
    });
  }

  void unmap(const GpuMemory& memory) noexcept override {
    on_device(memory.device, [&] {
      if (memory.got == GpuMemory::Got::pooled) return release_piece(memory);
      if (memory.got == GpuMemory::Got::opened) return require(calls_.IpcCloseMemHandle, address(memory.data));
      require(calls_.MemUnmap, address(memory.data), memory.bytes);
      require(calls_.MemAddressFree, address(memory.data), memory.bytes);
    });
  }

  std::optional<GpuExport> share(const GpuMemory& memory) override {
    const Apart apart(*this, memory.device);
    GpuExport share;
    share.names.device = id_of(memory.device);
    // Other names of a piece are those of the whole block that it lies in.
    if (auto* const pool = about<CUmemoryPool>(memory.data, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE); pool != nullptr)
      return share_piece(pool, memory, std::move(share));
    share.fd = descriptor_of(memory);
    CUipcMemHandle ipc{};
    const bool by_handle = about<unsigned>(memory.data, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) != 0 &&
                           calls_.IpcGetMemHandle(&ipc, address(memory.data)) == CUDA_SUCCESS;
    if (by_handle) share.names.handle = std::bit_cast<GpuHandle>(ipc);
    if (!share.fd && !by_handle) return std::nullopt;
    return share;
  }

  GpuMemory map(const GpuExport& what, std::size_t bytes) override {
    // The GPU that this process uses maps memory of every GPU.
    const int home = home_;
    const int device = home >= 0 ? home : find_device(what.names.device).value_or(0);
    const Apart apart(*this, device);
    if (what.names.piece.at != 0) return import_piece(what, device, bytes);
    const bool by_handle = what.names.handle != GpuHandle{};
    if (what.fd) {
      try {
        CUmemGenericAllocationHandle handle = 0;
        require(calls_.MemImportFromShareableHandle, &handle, as_handle(what.fd),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        return place(handle, device, bytes, find_device(what.names.device));
      } catch (const GpuError&) {
        if (!by_handle) throw;
      }
    }
    const auto ipc = std::bit_cast<CUipcMemHandle>(what.names.handle);
    CUdeviceptr at = 0;
    require(calls_.IpcOpenMemHandle, &at, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    return {device, pointer(at), bytes, 0, GpuMemory::Got::opened};
  }

  std::size_t reached(const void* at) override {
    const bool known = about<CUmemorytype>(at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) == CU_MEMORYTYPE_HOST ||
                       about<unsigned>(at, CU_POINTER_ATTRIBUTE_IS_MANAGED) != 0;
    if (!known) return 0;
    const auto start = about<CUdeviceptr>(at, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
    const auto bytes = about<std::size_t>(at, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
    return start <= address(at) && address(at) < start + bytes ? start + bytes - address(at) : 0;
  }

  void* reach(void* pages, std::size_t bytes, Pages what) override {
    const Apart apart(*this, current_device());
    const unsigned registers = what == Pages::registers ? CU_MEMHOSTREGISTER_IOMEMORY : 0;
    require(calls_.MemHostRegister, pages, bytes,
            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | registers);
    if (what == Pages::memory) return pages;
    CUdeviceptr at = 0;
    require(calls_.MemHostGetDevicePointer, &at, pages, 0);
    return pointer(at);
  }

  void give_up(void* pages) noexcept override {
    on_device(std::max(home_.load(), 0), [&] { require(calls_.MemHostUnregister, pages); });
  }

 private:
  /// A piece of another process's pool. It is imported once for all its mappings, and its pool once for all pieces: the
  /// driver returns the same pool each time, and the first free of a piece that was imported twice may end both.
  struct Imported {
    PoolPiece name;
    std::shared_ptr<CUmemPoolHandle_st> pool;
    CUdeviceptr at = 0;
    int users = 0;  // none: its free is under way
  };

  template <class T>
  T about(const void* at, CUpointer_attribute which) const {
    T value{};
    if (calls_.PointerGetAttribute(&value, which, address(at)) != CUDA_SUCCESS) value = {};
    return value;
  }

  /// Maps memory for `device` and all other GPUs that can access it, and releases the handle. `owner`: the GPU that the
  /// memory lies on, unless that GPU is hidden from this process.
  GpuMemory place(CUmemGenericAllocationHandle handle, int device, std::size_t bytes, std::optional<int> owner) {
    const std::shared_ptr<void> released(nullptr, [&](void*) { calls_.MemRelease(handle); });
    CUdeviceptr at = 0;
    require(calls_.MemAddressReserve, &at, bytes, 0, 0, 0);
    const GpuMemory memory{device, pointer(at), bytes, 0, GpuMemory::Got::mapped};
    const CUresult mapped = calls_.MemMap(at, bytes, 0, handle, 0);
    if (mapped != CUDA_SUCCESS) calls_.MemAddressFree(at, bytes);
    check(mapped, "cuMemMap");
    try {
      grant("cuMemSetAccess", false, [&](int gpu, const CUmemAccessDesc& access) {
        const CUresult result = calls_.MemSetAccess(at, bytes, &access, 1);
        if (gpu == owner) check(result, "cuMemSetAccess");
        return result == CUDA_SUCCESS;
      });
    } catch (...) {
      unmap(memory);
      throw;
    }
    return memory;
  }

  CUmemAccessDesc access_of(int device) const {
    CUmemAccessDesc all{};
    all.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    all.location.id = device_handle(device);
    all.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return all;
  }

  /// Lets all GPUs access memory, each by `give`, which is true if it may. `any`: one may already.
  template <class F>
  void grant(const char* function, bool any, F give) const {
    for (int device = 0; device < devices(); ++device) any |= give(device, access_of(device));
    if (!any) throw GpuError(std::string(function) + ": no GPU of this process reaches the memory");
  }

  base::Fd descriptor_of(const GpuMemory& memory) const {
    int fd = -1;
    CUmemGenericAllocationHandle handle = 0;
    if (calls_.MemRetainAllocationHandle(&handle, memory.data) != CUDA_SUCCESS) return {};
    const CUresult result = calls_.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    calls_.MemRelease(handle);
    return result == CUDA_SUCCESS ? base::Fd(fd) : base::Fd();
  }

  /// Exports the pool, then the piece. Empty: the pool was not made to be shared, as a GPU's default pool is not.
  std::optional<GpuExport> share_piece(CUmemoryPool pool, const GpuMemory& memory, GpuExport share) {
    const std::lock_guard lock(pools_mutex_);
    int fd = -1;
    CUmemPoolPtrExportData piece{};
    if (calls_.MemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
      return std::nullopt;
    share.fd = base::Fd(fd);
    if (calls_.MemPoolExportPointer(&piece, address(memory.data)) != CUDA_SUCCESS) return std::nullopt;
    share.names.piece = {base::process_token(), reinterpret_cast<std::uintptr_t>(memory.data),
                         std::bit_cast<GpuHandle>(piece)};
    return share;
  }

  GpuMemory import_piece(const GpuExport& what, int device, std::size_t bytes) {
    std::unique_lock lock(pools_mutex_);
    const PoolPiece& name = what.names.piece;
    auto piece = imported_.end();
    released_.wait(lock, [&] {
      piece = std::find_if(imported_.begin(), imported_.end(), [&](const auto& one) { return one.name == name; });
      return piece == imported_.end() || piece->users > 0;
    });
    if (piece == imported_.end()) {
      Imported fresh{name, import_pool(what)};
      auto data = std::bit_cast<CUmemPoolPtrExportData>(name.data);
      require(calls_.MemPoolImportPointer, &fresh.at, fresh.pool.get(), &data);
      piece = imported_.insert(imported_.end(), std::move(fresh));
    }
    ++piece->users;
    return {device, pointer(piece->at), bytes, 0, GpuMemory::Got::pooled};
  }

  /// With the mutex. The driver returns the same pool for each import of it. Its owner could not name the pool: the
  /// handle there may be that of a destroyed pool whose memory is still in use.
  std::shared_ptr<CUmemPoolHandle_st> import_pool(const GpuExport& what) const {
    CUmemoryPool pool = nullptr;
    require(calls_.MemPoolImportFromShareableHandle, &pool, as_handle(what.fd),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    for (const Imported& one : imported_) {
      if (one.pool.get() == pool) return one.pool;
    }
    std::shared_ptr<CUmemPoolHandle_st> owned(pool, [this](CUmemoryPool last) { calls_.MemPoolDestroy(last); });
    grant_pool(pool, find_device(what.names.device));
    return owned;
  }

  /// Lets all GPUs access an imported pool. At first only the GPU that the pool lies on has access, whatever its owner
  /// has granted.
  void grant_pool(CUmemoryPool pool, std::optional<int> owner) const {
    grant("cuMemPoolSetAccess", owner.has_value(), [&](int device, const CUmemAccessDesc& access) {
      if (device == owner) return false;
      // Without peer access, the call may succeed and the import of a piece fail. Nothing tells it of a hidden GPU.
      int can = 1;
      if (owner) calls_.DeviceCanAccessPeer(&can, access.location.id, access_of(*owner).location.id);
      return can != 0 && calls_.MemPoolSetAccess(pool, &access, 1) == CUDA_SUCCESS;
    });
  }

  /// Once it returns, the owner may free the piece. Frees in the order of a stream of ours, because cuMemFree would
  /// wait for all streams. That stream may be held up too; meanwhile other pieces can be imported and released.
  void release_piece(const GpuMemory& piece) {
    std::unique_lock lock(pools_mutex_);
    const auto is = [&](const Imported& one) { return one.at == address(piece.data) && one.users > 0; };
    const auto found = std::find_if(imported_.begin(), imported_.end(), is);
    if (found == imported_.end()) throw GpuError("memory of a pool that is not imported here");
    if (--found->users > 0) return;
    const std::shared_ptr<void> forget(nullptr, [&](void*) {
      if (!lock.owns_lock()) lock.lock();
      imported_.erase(found);  // and with the last piece the pool, which may be imported again from now on
      released_.notify_all();
    });
    aside(piece.device, [&](void* stream) {
      require(calls_.MemFreeAsync, found->at, handle(stream));
      lock.unlock();
    });
  }

  std::mutex pools_mutex_;  // for `imported_`, and calls that drivers do not take from several threads
  std::condition_variable released_;
  std::list<Imported> imported_;
};

base::OnePerProcess<Cuda> g_cuda;

}  // namespace

Driver& cuda_driver() { return *g_cuda; }

}  // namespace sluice::device
