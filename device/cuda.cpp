// SPDX-License-Identifier: Apache-2.0
// CUDA's driver. Its entry points are taken at run time: a program that is linked with Sluice starts without it.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "base/process.hpp"
#include "device/driver.hpp"
#include "device/kernel_images.hpp"
#include "device/vendors.hpp"

namespace sluice::device {
namespace {

// Their names are macros of cuda.h, which choose a version of each; asked for is the name itself.
#define SLUICE_CUDA_CALLS(X)            \
  X(cuInit)                             \
  X(cuDriverGetVersion)                 \
  X(cuGetErrorName)                     \
  X(cuDeviceGetCount)                   \
  X(cuDeviceGet)                        \
  X(cuDeviceGetName)                    \
  X(cuDeviceGetUuid)                    \
  X(cuDeviceGetPCIBusId)                \
  X(cuDeviceTotalMem)                   \
  X(cuDeviceGetAttribute)               \
  X(cuDeviceCanAccessPeer)              \
  X(cuDevicePrimaryCtxRetain)           \
  X(cuCtxGetCurrent)                    \
  X(cuCtxGetDevice)                     \
  X(cuCtxPushCurrent)                   \
  X(cuCtxPopCurrent)                    \
  X(cuStreamGetCtx)                     \
  X(cuStreamGetId)                      \
  X(cuStreamSynchronize)                \
  X(cuStreamQuery)                      \
  X(cuStreamBatchMemOp)                 \
  X(cuThreadExchangeStreamCaptureMode)  \
  X(cuMemcpyAsync)                      \
  X(cuMemsetD8Async)                    \
  X(cuMemAlloc)                         \
  X(cuMemFree)                          \
  X(cuMemFreeAsync)                     \
  X(cuMemHostRegister)                  \
  X(cuMemHostUnregister)                \
  X(cuPointerGetAttribute)              \
  X(cuMemGetAddressRange)               \
  X(cuMemGetAllocationGranularity)      \
  X(cuMemCreate)                        \
  X(cuMemAddressReserve)                \
  X(cuMemMap)                           \
  X(cuMemSetAccess)                     \
  X(cuMemRetainAllocationHandle)        \
  X(cuMemExportToShareableHandle)       \
  X(cuMemImportFromShareableHandle)     \
  X(cuMemUnmap)                         \
  X(cuMemRelease)                       \
  X(cuMemAddressFree)                   \
  X(cuMemPoolExportToShareableHandle)   \
  X(cuMemPoolImportFromShareableHandle) \
  X(cuMemPoolExportPointer)             \
  X(cuMemPoolImportPointer)             \
  X(cuMemPoolSetAccess)                 \
  X(cuMemPoolDestroy)                   \
  X(cuIpcGetMemHandle)                  \
  X(cuIpcOpenMemHandle)                 \
  X(cuIpcCloseMemHandle)                \
  X(cuLaunchHostFunc)                   \
  X(cuLaunchKernel)                     \
  X(cuModuleLoadData)                   \
  X(cuModuleGetFunction)                \
  X(cuMemHostGetDevicePointer)          \
  X(cuStreamCreateWithPriority)         \
  X(cuCtxSynchronize)

struct Calls {
#define SLUICE_DECLARE(call) decltype(&::call) call = nullptr;  // NOLINT(bugprone-macro-parentheses): a name
  SLUICE_CUDA_CALLS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
  // As of that version; cuda.h may have a later one.
  CUresult (*cuStreamGetCaptureInfo)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                     std::size_t*) = nullptr;
};

/// Returns why there are none; empty: all are there.
std::string load(Calls& calls) {
  constexpr int kVersion = 12000;  // the oldest whose calls are as we use them
  constexpr const char* kTooOld = "the CUDA driver is older than version 12.0";
  void* const library = dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "there is no CUDA driver (libcuda.so.1)";
  const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
  if (find == nullptr) return kTooOld;
  const auto get = [&](const char* name, void** call) {
    return find(name, call, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) == CUDA_SUCCESS && *call != nullptr;
  };
#define SLUICE_GET(call) \
  if (!get(#call, reinterpret_cast<void**>(&calls.call))) return kTooOld;
  SLUICE_CUDA_CALLS(SLUICE_GET)
  SLUICE_GET(cuStreamGetCaptureInfo)
#undef SLUICE_GET
  return {};
}

void* as_handle(const base::Fd& fd) noexcept { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd.get())); }
CUdeviceptr address(const void* pointer) noexcept { return reinterpret_cast<CUdeviceptr>(pointer); }
std::byte* pointer(CUdeviceptr address) noexcept { return reinterpret_cast<std::byte*>(address); }

class Cuda final : public Driver {
 public:
  Cuda() : why_not_(load(calls_)) {
    if (why_not_.empty()) why_not_ = start();
  }

  Stream::Kind kind() const noexcept override { return Stream::Kind::cuda; }
  const char* name() const noexcept override { return "cuda"; }
  const std::string& why_not() const noexcept override { return why_not_; }
  int devices() const noexcept override { return static_cast<int>(gpus_.size()); }
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
  void launch(int device, void* stream, const Launch& what) override;
  void load_kernels(int device) override { functions(device); }
  bool has_kernels(int device) const noexcept override { return gpus_[static_cast<std::size_t>(device)].loaded; }
  bool kernels_reach(const void* at) override {
    return at != nullptr && about<CUdeviceptr>(at, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == address(at);
  }
  void call(void* stream, void (*function)(void*), void* argument) override {
    check(calls_.cuLaunchHostFunc(static_cast<CUstream>(stream), function, argument), "cuLaunchHostFunc");
  }
  void synchronize(void* stream) override {
    check(calls_.cuStreamSynchronize(static_cast<CUstream>(stream)), "cuStreamSynchronize");
  }
  void aside(int device, const std::function<void(void*)>& work) override;
  Stream own_stream(int device) override;
  bool lost(int device) noexcept override;
  void copy_now(void* to, const void* from, std::size_t bytes) override;

  std::optional<GpuMemory> find(const void* at) override;
  GpuMemory allocate(int device, std::size_t bytes) override;
  void free(const GpuMemory& memory) noexcept override;
  std::optional<GpuExport> share(const GpuMemory& memory) override;
  GpuMemory map(const GpuExport& what, std::size_t bytes) override;
  void unmap(const GpuMemory& memory) noexcept override;
  void zero(const GpuMemory& memory) override;

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
    std::vector<CUstream> idle;          // of ours, for what no stream of the user's orders
    std::atomic<CUstream> own{nullptr};  // and for what nobody waits for
    CUmodule module = nullptr;
    std::array<CUfunction, kKernelNames.size()> kernels{};
    std::atomic<bool> loaded{false};
  };

  /// A GPU is current, and calls that no capture may have in it disturb none: they are not part of it.
  class Apart {
   public:
    Apart(Cuda& cuda, int device) : cuda_(cuda), current_(cuda, device) {
      cuda.calls_.cuThreadExchangeStreamCaptureMode(&mode_);
    }
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;
    ~Apart() { cuda_.calls_.cuThreadExchangeStreamCaptureMode(&mode_); }

   private:
    Cuda& cuda_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
    OnDevice current_;
  };

  /// A stream of ours.
  class Aside {
   public:
    Aside(Cuda& cuda, int device);
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;
    ~Aside();
    CUstream stream() const noexcept { return stream_; }

   private:
    Cuda& cuda_;
    int device_;
    Apart apart_;
    CUstream stream_ = nullptr;
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
  /// What cannot throw says what went wrong in the log. In any thread, also one that uses no GPU.
  template <class F>
  void on_device(int device, F work) noexcept {
    try {
      const Apart apart(*this, device);
      work();
    } catch (const GpuError& reason) {
      base::log(base::LogLevel::warn, reason.what());
    }
  }
  void create(CUstream& stream) const;
  const Gpu& functions(int device);
  CUmemAllocationProp shareable(int device) const;
  /// Gives a handle of the driver's back.
  class Released {
   public:
    Released(const Calls& calls, CUmemGenericAllocationHandle handle) : calls_(calls), handle_(handle) {}
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;
    ~Released() { calls_.cuMemRelease(handle_); }

   private:
    const Calls& calls_;
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

  Calls calls_;
  std::deque<Gpu> gpus_;
  std::mutex mutex_;           // contexts and idle streams
  std::atomic<int> home_{-1};  // the first GPU that was used
  std::mutex pools_mutex_;     // of what is imported, and calls that drivers do not take from several threads
  std::condition_variable let_go_;
  std::list<Imported> imported_;
  std::string why_not_;
};

std::string Cuda::start() {
  const CUresult result = calls_.cuInit(0);
  if (result == CUDA_ERROR_NO_DEVICE) return "no NVIDIA GPU is here";
  if (result != CUDA_SUCCESS) return "cuInit failed with error " + std::to_string(static_cast<int>(result));
  int count = 0;
  if (calls_.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) return "no NVIDIA GPU is here";
  for (int i = 0; i < count; ++i) {
    Gpu& gpu = gpus_.emplace_back();
    if (calls_.cuDeviceGet(&gpu.device, i) != CUDA_SUCCESS ||
        calls_.cuDeviceGetUuid(&gpu.uuid, gpu.device) != CUDA_SUCCESS)
      return "GPU " + std::to_string(i) + " does not answer";
    // Host memory is then at one address for the processor and for the GPU.
    if (attribute(i, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) == 0)
      return "GPU " + std::to_string(i) + " sees host memory at other addresses than the processor";
    if (attribute(i, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 0 && !words_by_kernels())
      return "streams of GPU " + std::to_string(i) + " cannot wait for words of 64 bits" + kKernelsCan;
  }
  return {};
}

void Cuda::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  if (calls_.cuGetErrorName(result, &text) != CUDA_SUCCESS) text = "an unknown error";
  throw GpuError(std::string(call) + ": " + text);
}

int Cuda::attribute(int device, CUdevice_attribute which) const {
  int value = 0;
  const CUdevice gpu = gpus_[static_cast<std::size_t>(device)].device;
  return calls_.cuDeviceGetAttribute(&value, which, gpu) == CUDA_SUCCESS ? value : 0;
}

base::Facts Cuda::facts(int device) {
  const Gpu& gpu = gpus_.at(static_cast<std::size_t>(device));
  char model[128] = {};
  char bus[32] = {};
  std::size_t bytes = 0;
  int version = 0;
  check(calls_.cuDeviceGetName(model, sizeof model, gpu.device), "cuDeviceGetName");
  check(calls_.cuDeviceGetPCIBusId(bus, sizeof bus, gpu.device), "cuDeviceGetPCIBusId");
  check(calls_.cuDeviceTotalMem(&bytes, gpu.device), "cuDeviceTotalMem");
  check(calls_.cuDriverGetVersion(&version), "cuDriverGetVersion");
  const auto has = [&](CUdevice_attribute which) { return attribute(device, which) != 0; };
  return {{"vendor", std::string("cuda")},
          {"device", static_cast<std::uint64_t>(device)},
          {"model", std::string(model)},
          {"bus", std::string(bus)},
          {"memory_bytes", static_cast<std::uint64_t>(bytes)},
          {"driver", std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10)},
          {"word_operations", has(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)},
          {"waits", std::string(words_by_kernels() ? "kernel" : "stream")},
          {"flushes_remote_writes", has(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)},
          {"shared_by_descriptor", has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)},
          {"dma_buf", has(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)}};
}

int Cuda::ordinal(CUdevice device) const {
  const auto is = [&](const Gpu& gpu) { return gpu.device == device; };
  return static_cast<int>(std::find_if(gpus_.begin(), gpus_.end(), is) - gpus_.begin());
}

std::optional<int> Cuda::ordinal(const std::array<std::byte, 16>& uuid) const {
  const auto is = [&](const Gpu& gpu) { return std::memcmp(gpu.uuid.bytes, uuid.data(), uuid.size()) == 0; };
  const auto gpu = std::find_if(gpus_.begin(), gpus_.end(), is);
  return gpu == gpus_.end() ? std::nullopt : std::optional(static_cast<int>(gpu - gpus_.begin()));
}

int Cuda::current_device() {
  CUdevice device = 0;
  return calls_.cuCtxGetDevice(&device) == CUDA_SUCCESS ? ordinal(device) : 0;
}

CUcontext Cuda::context(int device) {
  Gpu& gpu = gpus_.at(static_cast<std::size_t>(device));
  CUcontext known = gpu.context;
  if (known != nullptr) return known;
  const std::lock_guard lock(mutex_);
  known = gpu.context;
  if (known != nullptr) return known;
  check(calls_.cuDevicePrimaryCtxRetain(&known, gpu.device), "cuDevicePrimaryCtxRetain");
  if (home_ < 0) home_ = device;
  gpu.context = known;
  return known;
}

/// Verbs ask each time: a thread remembers the streams that it used last by their ids, which no two ever share.
StreamState Cuda::look_at(void* stream) {
  struct Known {
    unsigned long long id = 0;
    int device = -1;
  };
  static thread_local std::array<Known, 8> known;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  // The legacy stream cannot be captured; asking is an error while another stream is.
  const CUresult asked =
      calls_.cuStreamGetCaptureInfo(static_cast<CUstream>(stream), &status, &capture, nullptr, nullptr, nullptr);
  // While a stream captures, asking for its id fails, and makes the capture invalid; then asking for its context fails.
  if (asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) throw InvalidCapture();
  if (asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return {look_up(stream), capture};
  unsigned long long id = 0;
  check(calls_.cuStreamGetId(static_cast<CUstream>(stream), &id), "cuStreamGetId");
  Known& last = known[id % known.size()];
  if (last.device < 0 || last.id != id) last = {id, look_up(stream)};
  return {last.device, 0};
}

int Cuda::look_up(void* stream) {
  CUcontext own = nullptr;
  CUdevice device = 0;
  check(calls_.cuStreamGetCtx(static_cast<CUstream>(stream), &own), "cuStreamGetCtx");
  check(calls_.cuCtxPushCurrent(own), "cuCtxPushCurrent");
  const CUresult result = calls_.cuCtxGetDevice(&device);
  CUcontext popped = nullptr;
  calls_.cuCtxPopCurrent(&popped);
  check(result, "cuCtxGetDevice");
  // That of no other GPU: a context takes memory, and a GPU may be another process's alone.
  if (context(ordinal(device)) == own) return ordinal(device);
  throw GpuError("the stream is not of the primary context of a GPU, which the CUDA runtime uses");
}

void* Cuda::enter(int device) {
  CUcontext now = nullptr;
  CUcontext wanted = context(device);
  check(calls_.cuCtxGetCurrent(&now), "cuCtxGetCurrent");
  if (now == wanted) return nullptr;
  check(calls_.cuCtxPushCurrent(wanted), "cuCtxPushCurrent");
  return wanted;
}

void Cuda::leave(void* entered) noexcept {
  CUcontext popped = nullptr;
  if (entered != nullptr) calls_.cuCtxPopCurrent(&popped);
}

void Cuda::operate(void* stream, std::span<const WordOp> ops) {
  constexpr std::size_t kAtOnce = 64;  // the driver takes 255
  CUstreamBatchMemOpParams batch[kAtOnce];
  while (!ops.empty()) {
    const std::size_t count = std::min(ops.size(), kAtOnce);
    std::memset(batch, 0, count * sizeof batch[0]);
    for (std::size_t i = 0; i < count; ++i) {
      if (ops[i].kind == WordOp::Kind::wait) {
        batch[i].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_64, address(ops[i].word), {}, CU_STREAM_WAIT_VALUE_GEQ, 0};
        batch[i].waitValue.value64 = ops[i].value;
      } else {
        batch[i].writeValue = {
            CU_STREAM_MEM_OP_WRITE_VALUE_64, address(ops[i].word), {}, CU_STREAM_WRITE_VALUE_DEFAULT, 0};
        batch[i].writeValue.value64 = ops[i].value;
      }
    }
    check(calls_.cuStreamBatchMemOp(static_cast<CUstream>(stream), static_cast<unsigned>(count), batch, 0),
          "cuStreamBatchMemOp");
    ops = ops.subspan(count);
  }
}

Cuda::Aside::Aside(Cuda& cuda, int device) : cuda_(cuda), device_(device), apart_(cuda, device) {
  {
    const std::lock_guard lock(cuda.mutex_);
    auto& idle = cuda.gpus_[static_cast<std::size_t>(device)].idle;
    if (!idle.empty()) {
      stream_ = idle.back();
      idle.pop_back();
    }
  }
  // No other would do: the legacy stream of the program waits for that of a thread.
  if (stream_ == nullptr) cuda.create(stream_);
}

/// Non-blocking: the legacy stream of the program does not wait for it, nor it for that.
/// Of the highest priority: so that, if those have hardware queues of their own, it is behind no stream that waits.
void Cuda::create(CUstream& stream) const {
  constexpr int kHighest = -100;
  check(calls_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, kHighest), "cuStreamCreateWithPriority");
}

Stream Cuda::own_stream(int device) {
  const Apart apart(*this, device);
  const std::lock_guard lock(mutex_);
  std::atomic<CUstream>& own = gpus_.at(static_cast<std::size_t>(device)).own;
  CUstream stream = own;
  if (stream == nullptr) create(stream);
  own = stream;
  return Stream::cuda(stream);
}

/// Not by `Apart`: a context that has failed may refuse to be made current, too.
bool Cuda::lost(int device) noexcept {
  const Gpu& gpu = gpus_[static_cast<std::size_t>(device)];
  CUstream own = gpu.own;
  if (own == nullptr) return false;
  CUcontext popped = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUresult result = calls_.cuCtxPushCurrent(gpu.context);
  if (result == CUDA_SUCCESS) {
    calls_.cuThreadExchangeStreamCaptureMode(&mode);
    result = calls_.cuStreamQuery(own);
    calls_.cuThreadExchangeStreamCaptureMode(&mode);
    calls_.cuCtxPopCurrent(&popped);
  }
  return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_OUT_OF_MEMORY;
}

Cuda::Aside::~Aside() {
  const std::lock_guard lock(cuda_.mutex_);
  cuda_.gpus_[static_cast<std::size_t>(device_)].idle.push_back(stream_);
}

void Cuda::aside(int device, const std::function<void(void*)>& work) {
  const Aside aside(*this, device);
  work(aside.stream());
  synchronize(aside.stream());
}

void Cuda::copy_now(void* to, const void* from, std::size_t bytes) {
  auto memory = find(to);
  if (!memory) memory = find(from);
  aside(memory ? memory->device : 0, [&](void* stream) { copy(stream, to, from, bytes); });
}

void Cuda::zero(const GpuMemory& memory) {
  aside(memory.device, [&](void* stream) {
    check(calls_.cuMemsetD8Async(address(memory.data), 0, memory.bytes, static_cast<CUstream>(stream)),
          "cuMemsetD8Async");
  });
}

const Cuda::Gpu& Cuda::functions(int device) {
  Gpu& gpu = gpus_.at(static_cast<std::size_t>(device));
  if (gpu.loaded.load(std::memory_order_acquire)) return gpu;
  const Apart apart(*this, device);
  const std::lock_guard lock(mutex_);
  if (gpu.loaded) return gpu;
  if (gpu.module == nullptr) check(calls_.cuModuleLoadData(&gpu.module, cuda_kernels().data()), "cuModuleLoadData");
  for (std::size_t i = 0; i < gpu.kernels.size(); ++i)
    check(calls_.cuModuleGetFunction(&gpu.kernels[i], gpu.module, kKernelNames[i]), "cuModuleGetFunction");
  gpu.loaded.store(true, std::memory_order_release);
  return gpu;
}

void Cuda::launch(int device, void* stream, const Launch& what) {
  void* parameters[] = {what.args};
  check(calls_.cuLaunchKernel(functions(device).kernels[static_cast<std::size_t>(what.kernel)], what.blocks, what.rows,
                              1, what.threads, 1, 1, 0, static_cast<CUstream>(stream), parameters, nullptr),
        "cuLaunchKernel");
}

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

/// Whoever its owner has let in, an imported pool is reached by the GPU that it lies on alone.
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

base::OnePerProcess<Cuda> g_cuda;

}  // namespace

Driver& cuda_driver() { return *g_cuda; }

}  // namespace sluice::device
