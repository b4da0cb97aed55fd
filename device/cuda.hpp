// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "device/cuda_calls.hpp"
#include "device/vendor_driver.hpp"

namespace sluice::device {

inline CUdeviceptr address(const void* pointer) noexcept { return reinterpret_cast<CUdeviceptr>(pointer); }

/// CUDA's driver.
class Cuda final : public VendorDriver<CudaCalls> {
 public:
  Cuda() {
    why_not_ = load(calls_);
    if (why_not_.empty()) why_not_ = start();
  }

  base::Facts facts(int device) override;
  int current_device() override;
  bool orders_writes_of_others(int device) override {
    return attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
           CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  }

  StreamState look_at(void* stream) override;
  void* enter(int device) override;
  void leave(void* entered) noexcept override;
  void operate(void* stream, std::span<const WordOp> ops) override;
  void copy(void* stream, void* to, const void* from, std::size_t bytes) override {
    require(calls_.MemcpyAsync, address(to), address(from), bytes, handle(stream));
  }
  bool kernels_reach(const void* at) override {
    return at != nullptr && about<CUdeviceptr>(at, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == address(at);
  }

  std::optional<GpuMemory> find(const void* at) override;
  GpuMemory allocate(int device, std::size_t bytes) override;
  void free(const GpuMemory& memory) noexcept override;
  std::optional<GpuExport> share(const GpuMemory& memory) override;
  GpuMemory map(const GpuExport& what, std::size_t bytes) override;
  void unmap(const GpuMemory& memory) noexcept override;

  std::size_t reached(const void* at) override;
  void reach(void* pages, std::size_t bytes) override;
  void* reach_registers(void* pages, std::size_t bytes) override;
  void give_up(void* pages) noexcept override;

 private:
  /// A GPU here. Its streams are those of its primary context, which the runtime API uses.
  struct Gpu {
    CUdevice device = 0;
    std::atomic<CUcontext> context{nullptr};  // retained at first use: it takes memory of the GPU
  };

  /// A piece of another process's pool. It is imported once for all its mappings, and its pool once for all pieces: the
  /// driver returns the same pool each time, and the first free of a piece that was imported twice may end both.
  struct Imported {
    PoolPiece name;
    std::shared_ptr<CUmemPoolHandle_st> pool;
    CUdeviceptr at = 0;
    int users = 0;  // none: its free is under way
  };

  std::string start();
  int look_up(void* stream);
  int attribute(int device, CUdevice_attribute which) const;
  CUcontext context(int device);
  int ordinal(CUdevice device) const;
  template <class T>
  T about(const void* at, CUpointer_attribute which) const {
    T value{};
    if (calls_.PointerGetAttribute(&value, which, address(at)) != CUDA_SUCCESS) value = {};
    return value;
  }
  bool has_failed(int device, void* stream) noexcept override;
  void zero(void* stream, const GpuMemory& memory) override;
  CUmemAllocationProp shareable(int device) const;
  GpuMemory place(CUmemGenericAllocationHandle handle, int device, std::size_t bytes, std::optional<int> owner);
  CUmemAccessDesc access_of(int device) const;
  void grant(CUdeviceptr at, std::size_t bytes, std::optional<int> owner);
  base::Fd descriptor_of(const GpuMemory& memory) const;
  std::optional<GpuExport> share_piece(CUmemoryPool pool, const GpuMemory& memory, GpuExport share);
  GpuMemory import_piece(const GpuExport& what, int device, std::size_t bytes);
  std::shared_ptr<CUmemPoolHandle_st> import_pool(const GpuExport& what) const;
  void grant_pool(CUmemoryPool pool, std::optional<int> owner) const;
  void release_piece(const GpuMemory& piece);

  std::deque<Gpu> gpus_;
  std::mutex mutex_;           // contexts
  std::atomic<int> home_{-1};  // the first GPU that was used
  std::mutex pools_mutex_;     // for `imported_`, and calls that drivers do not take from several threads
  std::condition_variable released_;
  std::list<Imported> imported_;
};

}  // namespace sluice::device
