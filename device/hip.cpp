// SPDX-License-Identifier: Apache-2.0
// HIP's runtime. Its entry points are taken at run time: a program that is linked with Sluice starts without it. What
// cuda.cpp has and this has not: memory that goes to other processes by a descriptor, and operations on words in
// batches, both of which came after HIP 5.2.
#include <dlfcn.h>
#include <hip/hip_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "device/driver.hpp"
#include "device/kernel_images.hpp"
#include "device/vendors.hpp"

namespace sluice::device {

// The structures of the header are those of its major version.
#define SLUICE_TEXT(number) #number
#define SLUICE_TEXT_OF(macro) SLUICE_TEXT(macro)
const char* const kHipLibrary = "libamdhip64.so." SLUICE_TEXT_OF(HIP_VERSION_MAJOR);

namespace {

// With their types: the header overloads some of them by templates.
#define SLUICE_HIP_CALLS(X)                                                                                     \
  X(hipInit, unsigned)                                                                                          \
  X(hipDriverGetVersion, int*)                                                                                  \
  X(hipGetDeviceCount, int*)                                                                                    \
  X(hipGetDevice, int*)                                                                                         \
  X(hipSetDevice, int)                                                                                          \
  X(hipDeviceGetName, char*, int, hipDevice_t)                                                                  \
  X(hipDeviceGetUuid, hipUUID*, hipDevice_t)                                                                    \
  X(hipDeviceGetPCIBusId, char*, int, int)                                                                      \
  X(hipDeviceTotalMem, std::size_t*, hipDevice_t)                                                               \
  X(hipDeviceGetAttribute, int*, hipDeviceAttribute_t, int)                                                     \
  X(hipStreamCreateWithPriority, hipStream_t*, unsigned, int)                                                   \
  X(hipStreamSynchronize, hipStream_t)                                                                          \
  X(hipStreamQuery, hipStream_t)                                                                                \
  X(hipStreamGetCaptureInfo, hipStream_t, hipStreamCaptureStatus*, unsigned long long*)                         \
  X(hipStreamWaitValue64, hipStream_t, void*, std::uint64_t, unsigned, std::uint64_t)                           \
  X(hipStreamWriteValue64, hipStream_t, void*, std::uint64_t, unsigned)                                         \
  X(hipThreadExchangeStreamCaptureMode, hipStreamCaptureMode*)                                                  \
  X(hipMalloc, void**, std::size_t)                                                                             \
  X(hipFree, void*)                                                                                             \
  X(hipMemcpyAsync, void*, const void*, std::size_t, hipMemcpyKind, hipStream_t)                                \
  X(hipMemsetAsync, void*, int, std::size_t, hipStream_t)                                                       \
  X(hipHostRegister, void*, std::size_t, unsigned)                                                              \
  X(hipHostUnregister, void*)                                                                                   \
  X(hipHostGetDevicePointer, void**, void*, unsigned)                                                           \
  X(hipPointerGetAttributes, hipPointerAttribute_t*, const void*)                                               \
  X(hipPointerGetAttribute, void*, hipPointer_attribute, hipDeviceptr_t)                                        \
  X(hipMemGetAddressRange, hipDeviceptr_t*, std::size_t*, hipDeviceptr_t)                                       \
  X(hipIpcGetMemHandle, hipIpcMemHandle_t*, void*)                                                              \
  X(hipIpcOpenMemHandle, void**, hipIpcMemHandle_t, unsigned)                                                   \
  X(hipIpcCloseMemHandle, void*)                                                                                \
  X(hipModuleLoadData, hipModule_t*, const void*)                                                               \
  X(hipModuleGetFunction, hipFunction_t*, hipModule_t, const char*)                                             \
  X(hipModuleLaunchKernel, hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    hipStream_t, void**, void**)

struct Calls {
#define SLUICE_DECLARE(call, ...) hipError_t (*call)(__VA_ARGS__) = nullptr;
  SLUICE_HIP_CALLS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
  // Null: before HIP 5.3, and 5.6.
  hipError_t (*hipLaunchHostFunc)(hipStream_t, void (*)(void*), void*) = nullptr;
  hipError_t (*hipStreamGetDevice)(hipStream_t, hipDevice_t*) = nullptr;
};

/// Returns why there are none; empty: all are there.
std::string load(Calls& calls) {
  void* const library = dlopen(kHipLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string("there is no HIP runtime (") + kHipLibrary + ")";
#define SLUICE_GET(call, ...)                                                        \
  calls.call = reinterpret_cast<hipError_t (*)(__VA_ARGS__)>(dlsym(library, #call)); \
  if (calls.call == nullptr) return std::string("the HIP runtime has no ") + #call;
  SLUICE_HIP_CALLS(SLUICE_GET)
#undef SLUICE_GET
  calls.hipLaunchHostFunc = reinterpret_cast<decltype(calls.hipLaunchHostFunc)>(dlsym(library, "hipLaunchHostFunc"));
  calls.hipStreamGetDevice = reinterpret_cast<decltype(calls.hipStreamGetDevice)>(dlsym(library, "hipStreamGetDevice"));
  return {};
}

hipMemoryType type_of(const hipPointerAttribute_t& attributes) noexcept {
#if HIP_VERSION_MAJOR >= 6
  return attributes.type;
#else
  return attributes.memoryType;
#endif
}

hipDeviceptr_t address(const void* pointer) noexcept { return const_cast<void*>(pointer); }

class Hip final : public Driver {
 public:
  Hip() : why_not_(load(calls_)) {
    if (why_not_.empty()) why_not_ = start();
  }

  Stream::Kind kind() const noexcept override { return Stream::Kind::hip; }
  const char* name() const noexcept override { return "hip"; }
  const std::string& why_not() const noexcept override { return why_not_; }
  int devices() const noexcept override { return static_cast<int>(gpus_.size()); }
  base::Facts facts(int device) override;
  int current_device() override;
  bool orders_writes_of_others(int) override { return true; }  // as MPI libraries on AMD count on; nobody says so

  StreamState look_at(void* stream) override;
  void* enter(int device) override;
  void leave(void* entered) noexcept override;
  void operate(void* stream, std::span<const WordOp> ops) override;
  void copy(void* stream, void* to, const void* from, std::size_t bytes) override {
    check(calls_.hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, static_cast<hipStream_t>(stream)), "hipMemcpyAsync");
  }
  void launch(int device, void* stream, const Launch& what) override;
  void load_kernels(int device) override { functions(device); }
  bool has_kernels(int device) const noexcept override { return gpus_[static_cast<std::size_t>(device)].loaded; }
  bool kernels_reach(const void* at) override;
  void call(void* stream, void (*function)(void*), void* argument) override {
    if (calls_.hipLaunchHostFunc == nullptr) throw GpuError("this HIP has no host functions");
    check(calls_.hipLaunchHostFunc(static_cast<hipStream_t>(stream), function, argument), "hipLaunchHostFunc");
  }
  void synchronize(void* stream) override {
    check(calls_.hipStreamSynchronize(static_cast<hipStream_t>(stream)), "hipStreamSynchronize");
  }
  void aside(int device, const std::function<void(void*)>& work) override;
  Stream own_stream(int device) override;
  bool lost(int device) noexcept override;
  void copy_now(void* to, const void* from, std::size_t bytes) override;

  std::optional<GpuMemory> find(const void* at) override;
  GpuMemory allocate(int device, std::size_t bytes) override;
  void free(const GpuMemory& memory) noexcept override {
    apart(memory.device, [&] { check(calls_.hipFree(memory.data), "hipFree"); });
  }
  std::optional<GpuExport> share(const GpuMemory& memory) override;
  GpuMemory map(const GpuExport& what, std::size_t bytes) override;
  void unmap(const GpuMemory& memory) noexcept override {
    apart(memory.device, [&] { check(calls_.hipIpcCloseMemHandle(memory.data), "hipIpcCloseMemHandle"); });
  }
  void zero(const GpuMemory& memory) override;

  std::size_t reached(const void* at) override;
  void reach(void* pages, std::size_t bytes) override;
  void* reach_registers(void* pages, std::size_t bytes) override;
  void give_up(void* pages) noexcept override {
    apart(current_device(), [&] { check(calls_.hipHostUnregister(pages), "hipHostUnregister"); });
  }

 private:
  struct Gpu {
    hipUUID uuid{};
    std::vector<hipStream_t> idle;          // of ours, for what no stream of the user's orders
    std::atomic<hipStream_t> own{nullptr};  // and for what nobody waits for
    hipModule_t module = nullptr;
    std::array<hipFunction_t, kKernelNames.size()> kernels{};
    std::atomic<bool> loaded{false};
  };

  /// A GPU is current, and calls that no capture may have in it disturb none: they are not part of it.
  class Apart {
   public:
    Apart(Hip& hip, int device) : hip_(hip), current_(hip, device) {
      static_cast<void>(hip.calls_.hipThreadExchangeStreamCaptureMode(&mode_));
    }
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;
    ~Apart() { static_cast<void>(hip_.calls_.hipThreadExchangeStreamCaptureMode(&mode_)); }

   private:
    Hip& hip_;
    hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
    OnDevice current_;
  };

  /// A stream of ours.
  class Aside {
   public:
    Aside(Hip& hip, int device);
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;
    ~Aside();
    hipStream_t stream() const noexcept { return stream_; }

   private:
    Hip& hip_;
    int device_;
    Apart apart_;
    hipStream_t stream_ = nullptr;
  };

  std::string start();
  void create(hipStream_t& stream) const;
  const Gpu& functions(int device);
  static void check(hipError_t result, const char* call) {
    if (result != hipSuccess) throw GpuError(std::string(call) + ": error " + std::to_string(result) + " of HIP");
  }
  /// What cannot throw says what went wrong in the log.
  template <class F>
  void apart(int device, F work) noexcept {
    try {
      const Apart apart(*this, device);
      work();
    } catch (const GpuError& reason) {
      base::log(base::LogLevel::warn, reason.what());
    }
  }
  int attribute(int device, hipDeviceAttribute_t which) const {
    int value = 0;
    return calls_.hipDeviceGetAttribute(&value, which, device) == hipSuccess ? value : 0;
  }

  Calls calls_;
  std::deque<Gpu> gpus_;
  std::mutex mutex_;  // idle streams
  std::string why_not_;
};

std::string Hip::start() {
  int count = 0;
  if (calls_.hipInit(0) != hipSuccess || calls_.hipGetDeviceCount(&count) != hipSuccess || count == 0)
    return "no AMD GPU is here";
  const char* const in_queues = std::getenv("GPU_STREAMOPS_CP_WAIT");
  if (in_queues != nullptr && std::atoi(in_queues) != 0 && !words_by_kernels())
    return std::string(
               "with GPU_STREAMOPS_CP_WAIT they wait for words of one GPU's signal memory alone, and ours are "
               "the processes': unset it") +
           kKernelsCan;
  for (int i = 0; i < count; ++i) {
    if (attribute(i, hipDeviceAttributeCanUseStreamWaitValue) == 0 && !words_by_kernels())
      return "streams of GPU " + std::to_string(i) + " cannot wait for a word" + kKernelsCan;
    if (calls_.hipDeviceGetUuid(&gpus_.emplace_back().uuid, i) != hipSuccess)
      return "GPU " + std::to_string(i) + " does not answer";
  }
  return {};
}

base::Facts Hip::facts(int device) {
  char model[128] = {};
  char bus[32] = {};
  std::size_t bytes = 0;
  int version = 0;
  check(calls_.hipDeviceGetName(model, sizeof model, device), "hipDeviceGetName");
  check(calls_.hipDeviceGetPCIBusId(bus, sizeof bus, device), "hipDeviceGetPCIBusId");
  check(calls_.hipDeviceTotalMem(&bytes, device), "hipDeviceTotalMem");
  check(calls_.hipDriverGetVersion(&version), "hipDriverGetVersion");
  return {{"vendor", std::string("hip")},
          {"device", static_cast<std::uint64_t>(device)},
          {"model", std::string(model)},
          {"bus", std::string(bus)},
          {"memory_bytes", static_cast<std::uint64_t>(bytes)},
          {"driver", std::to_string(version)},
          {"word_operations", attribute(device, hipDeviceAttributeCanUseStreamWaitValue) != 0},
          {"waits", std::string(words_by_kernels() ? "kernel" : "stream")},
          {"flushes_remote_writes", false},
          {"shared_by_descriptor", false},
          {"dma_buf", base::Fact{}}};
}

int Hip::current_device() {
  int device = 0;
  return calls_.hipGetDevice(&device) == hipSuccess ? device : 0;
}

/// The default stream is the current device's. So must others be where HIP cannot be asked.
StreamState Hip::look_at(void* stream) {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  unsigned long long capture = 0;
  const hipError_t asked = calls_.hipStreamGetCaptureInfo(static_cast<hipStream_t>(stream), &status, &capture);
  if (asked == hipSuccess && status == hipStreamCaptureStatusInvalidated) throw InvalidCapture();
  const bool captures = asked == hipSuccess && status == hipStreamCaptureStatusActive;
  StreamState state{current_device(), captures ? capture : 0};
  if (stream == nullptr || calls_.hipStreamGetDevice == nullptr) return state;
  check(calls_.hipStreamGetDevice(static_cast<hipStream_t>(stream), &state.device), "hipStreamGetDevice");
  return state;
}

/// Returns one more than the device that was current, if another becomes it.
void* Hip::enter(int device) {
  const int now = current_device();
  if (now == device) return nullptr;
  check(calls_.hipSetDevice(device), "hipSetDevice");
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(now) + 1);
}

void Hip::leave(void* entered) noexcept {
  if (entered != nullptr)
    static_cast<void>(calls_.hipSetDevice(static_cast<int>(reinterpret_cast<std::intptr_t>(entered) - 1)));
}

void Hip::operate(void* stream, std::span<const WordOp> ops) {
  for (const WordOp& op : ops) {
    if (op.kind == WordOp::Kind::wait) {
      check(calls_.hipStreamWaitValue64(static_cast<hipStream_t>(stream), op.word, op.value, hipStreamWaitValueGte,
                                        ~std::uint64_t{0}),
            "hipStreamWaitValue64");
    } else {
      check(calls_.hipStreamWriteValue64(static_cast<hipStream_t>(stream), op.word, op.value, 0),
            "hipStreamWriteValue64");
    }
  }
}

Hip::Aside::Aside(Hip& hip, int device) : hip_(hip), device_(device), apart_(hip, device) {
  {
    const std::lock_guard lock(hip.mutex_);
    auto& idle = hip.gpus_[static_cast<std::size_t>(device)].idle;
    if (!idle.empty()) {
      stream_ = idle.back();
      idle.pop_back();
    }
  }
  if (stream_ == nullptr) hip.create(stream_);
}

void Hip::create(hipStream_t& stream) const {
  constexpr int kHighest = -100;  // as for CUDA: what is beyond the range is taken for its end
  check(calls_.hipStreamCreateWithPriority(&stream, hipStreamNonBlocking, kHighest), "hipStreamCreateWithPriority");
}

Stream Hip::own_stream(int device) {
  const Apart apart(*this, device);
  const std::lock_guard lock(mutex_);
  std::atomic<hipStream_t>& own = gpus_.at(static_cast<std::size_t>(device)).own;
  hipStream_t stream = own;
  if (stream == nullptr) create(stream);
  own = stream;
  return Stream::hip(stream);
}

bool Hip::lost(int device) noexcept {
  hipStream_t own = gpus_[static_cast<std::size_t>(device)].own;
  if (own == nullptr) return false;
  hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
  static_cast<void>(calls_.hipThreadExchangeStreamCaptureMode(&mode));
  const hipError_t result = calls_.hipStreamQuery(own);
  static_cast<void>(calls_.hipThreadExchangeStreamCaptureMode(&mode));
  return result != hipSuccess && result != hipErrorNotReady && result != hipErrorOutOfMemory;
}

Hip::Aside::~Aside() {
  const std::lock_guard lock(hip_.mutex_);
  hip_.gpus_[static_cast<std::size_t>(device_)].idle.push_back(stream_);
}

void Hip::aside(int device, const std::function<void(void*)>& work) {
  const Aside aside(*this, device);
  work(aside.stream());
  synchronize(aside.stream());
}

void Hip::copy_now(void* to, const void* from, std::size_t bytes) {
  auto memory = find(to);
  if (!memory) memory = find(from);
  aside(memory ? memory->device : 0, [&](void* stream) { copy(stream, to, from, bytes); });
}

void Hip::zero(const GpuMemory& memory) {
  aside(memory.device, [&](void* stream) {
    check(calls_.hipMemsetAsync(memory.data, 0, memory.bytes, static_cast<hipStream_t>(stream)), "hipMemsetAsync");
  });
}

const Hip::Gpu& Hip::functions(int device) {
  Gpu& gpu = gpus_.at(static_cast<std::size_t>(device));
  if (gpu.loaded.load(std::memory_order_acquire)) return gpu;
  const Apart apart(*this, device);
  const std::lock_guard lock(mutex_);
  if (gpu.loaded) return gpu;
  if (gpu.module == nullptr) check(calls_.hipModuleLoadData(&gpu.module, hip_kernels().data()), "hipModuleLoadData");
  for (std::size_t i = 0; i < gpu.kernels.size(); ++i)
    check(calls_.hipModuleGetFunction(&gpu.kernels[i], gpu.module, kKernelNames[i]), "hipModuleGetFunction");
  gpu.loaded.store(true, std::memory_order_release);
  return gpu;
}

void Hip::launch(int device, void* stream, const Launch& what) {
  void* parameters[] = {what.args};
  check(calls_.hipModuleLaunchKernel(functions(device).kernels[static_cast<std::size_t>(what.kernel)], what.blocks,
                                     what.rows, 1, what.threads, 1, 1, 0, static_cast<hipStream_t>(stream), parameters,
                                     nullptr),
        "hipModuleLaunchKernel");
}

std::optional<GpuMemory> Hip::find(const void* at) {
  hipPointerAttribute_t attributes{};
  if (calls_.hipPointerGetAttributes(&attributes, at) != hipSuccess || attributes.isManaged != 0 ||
      type_of(attributes) != hipMemoryTypeDevice)
    return std::nullopt;
  GpuMemory memory;
  hipDeviceptr_t data = nullptr;
  check(calls_.hipMemGetAddressRange(&data, &memory.bytes, address(at)), "hipMemGetAddressRange");
  memory.device = attributes.device;
  memory.data = static_cast<std::byte*>(data);
  if (calls_.hipPointerGetAttribute(&memory.id, HIP_POINTER_ATTRIBUTE_BUFFER_ID, address(at)) != hipSuccess)
    memory.id = reinterpret_cast<std::uintptr_t>(data);
  return memory;
}

/// What is mapped on another GPU might be reached: nobody says so.
bool Hip::kernels_reach(const void* at) {
  hipPointerAttribute_t attributes{};
  return calls_.hipPointerGetAttributes(&attributes, at) == hipSuccess &&
         (type_of(attributes) != hipMemoryTypeDevice || attributes.device == current_device());
}

GpuMemory Hip::allocate(int device, std::size_t bytes) {
  const Apart apart(*this, device);
  void* data = nullptr;
  check(calls_.hipMalloc(&data, bytes), "hipMalloc");
  return {device, static_cast<std::byte*>(data), bytes};
}

/// HIP does not say which pool memory is from (up to 6.2), and gives the handle for that of hipMallocAsync too.
std::optional<GpuExport> Hip::share(const GpuMemory& memory) {
  GpuExport share;
  hipIpcMemHandle_t ipc{};
  if (calls_.hipIpcGetMemHandle(&ipc, memory.data) != hipSuccess) return std::nullopt;
  static_assert(sizeof ipc.reserved == sizeof(GpuHandle));
  GpuNames& names = share.names;
  std::memcpy(names.handle.data(), ipc.reserved, names.handle.size());
  std::memcpy(names.device.data(), gpus_.at(static_cast<std::size_t>(memory.device)).uuid.bytes, names.device.size());
  return share;
}

GpuMemory Hip::map(const GpuExport& what, std::size_t bytes) {
  int device = 0;
  for (int i = 0; i < devices(); ++i) {
    if (std::memcmp(gpus_[static_cast<std::size_t>(i)].uuid.bytes, what.names.device.data(),
                    what.names.device.size()) == 0)
      device = i;
  }
  const Apart apart(*this, device);
  hipIpcMemHandle_t ipc{};
  std::memcpy(ipc.reserved, what.names.handle.data(), what.names.handle.size());
  void* at = nullptr;
  check(calls_.hipIpcOpenMemHandle(&at, ipc, hipIpcMemLazyEnablePeerAccess), "hipIpcOpenMemHandle");
  return {device, static_cast<std::byte*>(at), bytes, 0, GpuMemory::Got::opened};
}

/// Of pinned memory HIP says where it begins and how long it is.
std::size_t Hip::reached(const void* at) {
  hipPointerAttribute_t attributes{};
  if (calls_.hipPointerGetAttributes(&attributes, at) != hipSuccess) return 0;
  if (type_of(attributes) != hipMemoryTypeHost && attributes.isManaged == 0) return 0;
  hipDeviceptr_t data = nullptr;
  std::size_t bytes = 0;
  if (calls_.hipMemGetAddressRange(&data, &bytes, address(at)) != hipSuccess) return 0;
  const auto* const end = static_cast<const std::byte*>(data) + bytes;
  return static_cast<const std::byte*>(at) < end ? static_cast<std::size_t>(end - static_cast<const std::byte*>(at))
                                                 : 0;
}

void Hip::reach(void* pages, std::size_t bytes) {
  const Apart apart(*this, current_device());
  check(calls_.hipHostRegister(pages, bytes, hipHostRegisterPortable | hipHostRegisterMapped), "hipHostRegister");
  void* seen = nullptr;
  check(calls_.hipHostGetDevicePointer(&seen, pages, 0), "hipHostGetDevicePointer");
  if (seen == pages) return;
  give_up(pages);
  throw GpuError("the GPU sees host memory at other addresses than the processor");
}

void* Hip::reach_registers(void* pages, std::size_t bytes) {
  const Apart apart(*this, current_device());
  constexpr unsigned kRegisters = hipHostRegisterPortable | hipHostRegisterMapped | hipHostRegisterIoMemory;
  check(calls_.hipHostRegister(pages, bytes, kRegisters), "hipHostRegister");
  void* at = nullptr;
  check(calls_.hipHostGetDevicePointer(&at, pages, 0), "hipHostGetDevicePointer");
  return at;
}

base::OnePerProcess<Hip> g_hip;

}  // namespace

Driver& hip_driver() { return *g_hip; }

}  // namespace sluice::device
