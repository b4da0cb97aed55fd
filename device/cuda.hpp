// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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
class Cuda final : public VendorDriver {
 public:
  Cuda() {
    const std::string why = load(calls_);
    set_why_not(why.empty() ? start() : why);
  }

  Stream::Kind kind() const noexcept override { return Stream::Kind::cuda; }
  const char* name() const noexcept override { return "cuda"; }
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
    check(calls_.cuMemcpyAsync(address(to), address(from), bytes, static_cast<CUstream>(stream)), "cuMemcpyAsync");
  }
  bool kernels_reach(const void* at) override {
    return at != nullptr && about<CUdeviceptr>(at, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == address(at);
  }
  void call(void* stream, void (*function)(void*), void* argument) override {
    check(calls_.cuLaunchHostFunc(static_cast<CUstream>(stream), function, argument), "cuLaunchHostFunc");
  }
  void synchronize(void* stream) override {
    check(calls_.cuStreamSynchronize(static_cast<CUstream>(stream)), "cuStreamSynchronize");
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
  /// One that we see. Its streams are those of its primary context, which the runtime API uses.
  struct Gpu {
    CUdevice device = 0;
    std::atomic<CUcontext> context{nullptr};  // retained at first use: it takes memory of the GPU
    CUuuid uuid{};
  };

  /// A piece of another process's pool. It is imported once, however many map it, and the pool while a piece is: the
  /// driver gives the same pool each time, and the first free of a piece that was imported twice may end both.
  struct Imported {
    PoolPiece name;
    std::shared_ptr<CUmemPoolHandle_st> pool;
    CUdeviceptr at = 0;
    int users = 0;  // none: its free is under way
  };

  std::string start();
  int look_up(void* stream);
  void check(CUresult result, const char* call) const;
  int attribute(int device, CUdevice_attribute which) const;
  CUcontext context(int device);
  int ordinal(CUdevice device) const;
  std::optional<int> ordinal(const std::array<std::byte, 16>& uuid) const;
  template <class T>
  T about(const void* at, CUpointer_attribute which) const {
    T value{};
    if (calls_.cuPointerGetAttribute(&value, which, address(at)) != CUDA_SUCCESS) value = {};
    return value;
  }
  int exchange_capture_mode(int mode) noexcept override;
  void* new_stream() override;
  Stream public_stream(void* stream) const noexcept override { return Stream::cuda(static_cast<CUstream>(stream)); }
  bool has_failed(int device, void* stream) noexcept override;
  void* load_module() override;
  void* find_function(void* module, const char* name) override;
  void launch(void* function, void* stream, const Launch& what) override;
  void zero(void* stream, const GpuMemory& memory) override;
  CUmemAllocationProp shareable(int device) const;
  /// Gives a handle of the driver's back.
  class Released {
   public:
    Released(const CudaCalls& calls, CUmemGenericAllocationHandle handle) : calls_(calls), handle_(handle) {}
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;
    ~Released() { calls_.cuMemRelease(handle_); }

   private:
    const CudaCalls& calls_;
    CUmemGenericAllocationHandle handle_;
  };
  GpuMemory place(CUmemGenericAllocationHandle handle, int device, std::size_t bytes, std::optional<int> owner);
  CUmemAccessDesc access_of(int device) const;
  void grant(CUdeviceptr at, std::size_t bytes, std::optional<int> owner);
  base::Fd descriptor_of(const GpuMemory& memory) const;
  bool name_handle(const GpuMemory& memory, GpuNames& names) const;
  std::optional<GpuExport> share_piece(CUmemoryPool pool, const GpuMemory& memory, GpuExport share);
  GpuMemory import_piece(const GpuExport& what, int device, std::size_t bytes);
  std::shared_ptr<CUmemPoolHandle_st> import_pool(const GpuExport& what) const;
  void let_in(CUmemoryPool pool, std::optional<int> owner) const;
  void let_go(const GpuMemory& piece);
  void await_streams();

  CudaCalls calls_;
  std::deque<Gpu> gpus_;
  std::mutex mutex_;           // contexts
  std::atomic<int> home_{-1};  // the first GPU that was used
  std::mutex pools_mutex_;     // of what is imported, and calls that drivers do not take from several threads
  std::condition_variable let_go_;
  std::list<Imported> imported_;
};

}  // namespace sluice::device
