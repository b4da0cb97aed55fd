// SPDX-License-Identifier: Apache-2.0
// HIP's runtime. It lacks two abilities of CUDA's driver: to share memory with other processes by a descriptor, and to
// operate on words in batches. Both came after HIP 5.2.
#include <dlfcn.h>
#include <hip/hip_runtime_api.h>

#include <bit>
#include <cstdlib>

#include "base/fork.hpp"
#include "device/vendor_driver.hpp"

namespace sluice::device {

// The structures of the header are those of its major version.
#define SLUICE_TEXT(number) #number
#define SLUICE_TEXT_OF(macro) SLUICE_TEXT(macro)
const char* const kHipLibrary = "libamdhip64.so." SLUICE_TEXT_OF(HIP_VERSION_MAJOR);

namespace {

struct HipCalls {
  using Result = hipError_t;
  using StreamHandle = hipStream_t;
  using CaptureMode = hipStreamCaptureMode;
  using Module = hipModule_t;
  using Function = hipFunction_t;
  static constexpr const char* kName = "hip";
  static constexpr Stream::Kind kKind = Stream::Kind::hip;
  static constexpr Result kSuccess = hipSuccess;
  static constexpr Result kNotReady = hipErrorNotReady;
  static constexpr Result kOutOfMemory = hipErrorOutOfMemory;
  static constexpr CaptureMode kRelaxed = hipStreamCaptureModeRelaxed;
  static constexpr unsigned kNonBlocking = hipStreamNonBlocking;
  static constexpr auto kStream = &Stream::hip;
  static constexpr auto kKernels = &hip_kernels;

  static hipDeviceptr_t address(const void* pointer) noexcept { return const_cast<void*>(pointer); }

  // With types, because the header overloads some of the functions by templates.
  Symbols all;
  Call<hipError_t(unsigned)> Init{all, "hipInit"};
  Call<hipError_t(int*)> DriverGetVersion{all, "hipDriverGetVersion"};
  Call<hipError_t(int*)> GetDeviceCount{all, "hipGetDeviceCount"};
  Call<hipError_t(int*)> GetDevice{all, "hipGetDevice"};
  Call<hipError_t(int)> SetDevice{all, "hipSetDevice"};
  Call<hipError_t(char*, int, hipDevice_t)> DeviceGetName{all, "hipDeviceGetName"};
  Call<hipError_t(hipUUID*, hipDevice_t)> DeviceGetUuid{all, "hipDeviceGetUuid"};
  Call<hipError_t(char*, int, int)> DeviceGetPCIBusId{all, "hipDeviceGetPCIBusId"};
  Call<hipError_t(std::size_t*, hipDevice_t)> DeviceTotalMem{all, "hipDeviceTotalMem"};
  Call<hipError_t(int*, hipDeviceAttribute_t, int)> DeviceGetAttribute{all, "hipDeviceGetAttribute"};
  Call<hipError_t(hipStream_t*, unsigned, int)> StreamCreateWithPriority{all, "hipStreamCreateWithPriority"};
  Call<hipError_t(hipStream_t)> StreamSynchronize{all, "hipStreamSynchronize"};
  Call<hipError_t(hipStream_t)> StreamQuery{all, "hipStreamQuery"};
  Call<hipError_t(hipStream_t, hipStreamCaptureStatus*, unsigned long long*)> StreamGetCaptureInfo{
      all, "hipStreamGetCaptureInfo"};
  Call<hipError_t(hipStream_t, void*, std::uint64_t, unsigned, std::uint64_t)> StreamWaitValue64{
      all, "hipStreamWaitValue64"};
  Call<hipError_t(hipStream_t, void*, std::uint64_t, unsigned)> StreamWriteValue64{all, "hipStreamWriteValue64"};
  Call<hipError_t(hipStreamCaptureMode*)> ThreadExchangeStreamCaptureMode{all, "hipThreadExchangeStreamCaptureMode"};
  Call<hipError_t(void**, std::size_t)> Malloc{all, "hipMalloc"};
  Call<hipError_t(void*)> Free{all, "hipFree"};
  Call<hipError_t(void*, const void*, std::size_t, hipMemcpyKind, hipStream_t)> MemcpyAsync{all, "hipMemcpyAsync"};
  Call<hipError_t(void*, int, std::size_t, hipStream_t)> MemsetAsync{all, "hipMemsetAsync"};
  Call<hipError_t(void*, std::size_t, unsigned)> HostRegister{all, "hipHostRegister"};
  Call<hipError_t(void*)> HostUnregister{all, "hipHostUnregister"};
  Call<hipError_t(void**, void*, unsigned)> HostGetDevicePointer{all, "hipHostGetDevicePointer"};
  Call<hipError_t(hipPointerAttribute_t*, const void*)> PointerGetAttributes{all, "hipPointerGetAttributes"};
  Call<hipError_t(void*, hipPointer_attribute, hipDeviceptr_t)> PointerGetAttribute{all, "hipPointerGetAttribute"};
  Call<hipError_t(hipDeviceptr_t*, std::size_t*, hipDeviceptr_t)> MemGetAddressRange{all, "hipMemGetAddressRange"};
  Call<hipError_t(hipIpcMemHandle_t*, void*)> IpcGetMemHandle{all, "hipIpcGetMemHandle"};
  Call<hipError_t(void**, hipIpcMemHandle_t, unsigned)> IpcOpenMemHandle{all, "hipIpcOpenMemHandle"};
  Call<hipError_t(void*)> IpcCloseMemHandle{all, "hipIpcCloseMemHandle"};
  Call<hipError_t(hipModule_t*, const void*)> ModuleLoadData{all, "hipModuleLoadData"};
  Call<hipError_t(hipFunction_t*, hipModule_t, const char*)> ModuleGetFunction{all, "hipModuleGetFunction"};
  Call<hipError_t(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, hipStream_t,
                  void**, void**)>
      LaunchKernel{all, "hipModuleLaunchKernel"};
  Call<hipError_t(hipStream_t, void (*)(void*), void*)> LaunchHostFunc{all, "hipLaunchHostFunc"};
  Call<hipError_t(hipStream_t, hipDevice_t*)> StreamGetDevice{all, "hipStreamGetDevice"};

  /// Loads the functions. Returns why there are none; empty: all are there.
  std::string load() {
    void* const library = dlopen(kHipLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::string("there is no HIP runtime (") + kHipLibrary + ")";
    for (Symbol* const one : all) {
      one->address = dlsym(library, one->name);
      const bool optional = one == &LaunchHostFunc || one == &StreamGetDevice;  // null before HIP 5.3, and 5.6
      if (one->address == nullptr && !optional) return std::string("the HIP runtime has no ") + one->name;
    }
    return {};
  }

  std::string text_of(Result result) const { return "error " + std::to_string(result) + " of HIP"; }
  static std::string version_text(int version) { return std::to_string(version); }
};

hipMemoryType type_of(const hipPointerAttribute_t& attributes) noexcept {
#if HIP_VERSION_MAJOR >= 6
  return attributes.type;
#else
  return attributes.memoryType;
#endif
}

class Hip final : public VendorDriver<HipCalls> {
 public:
  Hip() {
    if (why_not_.empty()) why_not_ = start();
  }

  base::Facts facts(int device) override {
    const bool waits_for_words = attribute(device, hipDeviceAttributeCanUseStreamWaitValue) != 0;
    return facts_of(device, device, waits_for_words, false, false, {});
  }

  int current_device() override {
    int device = 0;
    return calls_.GetDevice(&device) == hipSuccess ? device : 0;
  }

  /// Undocumented, but MPI libraries on AMD rely on it.
  bool orders_writes_of_others(int) override { return true; }

  /// The default stream belongs to the current device. HIP before 5.6 does not tell the device of other streams, which
  /// must be the current one too.
  StreamState look_at(void* stream) override {
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
    unsigned long long capture = 0;
    const hipError_t asked = calls_.StreamGetCaptureInfo(handle(stream), &status, &capture);
    if (asked == hipSuccess && status == hipStreamCaptureStatusInvalidated) throw InvalidCapture();
    const bool captures = asked == hipSuccess && status == hipStreamCaptureStatusActive;
    StreamState state{current_device(), captures ? capture : 0};
    if (stream == nullptr || calls_.StreamGetDevice.address == nullptr) return state;
    require(calls_.StreamGetDevice, handle(stream), &state.device);
    return state;
  }

  /// Returns one more than the device that was current, if another becomes current.
  void* enter(int device) override {
    const int now = current_device();
    if (now == device) return nullptr;
    require(calls_.SetDevice, device);
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(now) + 1);
  }

  void leave(void* entered) noexcept override {
    if (entered != nullptr)
      static_cast<void>(calls_.SetDevice(static_cast<int>(reinterpret_cast<std::intptr_t>(entered) - 1)));
  }

  void operate(void* stream, std::span<const WordOp> ops) override {
    for (const WordOp& op : ops) {
      if (op.kind == WordOp::Kind::wait) {
        require(calls_.StreamWaitValue64, handle(stream), op.word, op.value, hipStreamWaitValueGte, ~std::uint64_t{0});
      } else {
        require(calls_.StreamWriteValue64, handle(stream), op.word, op.value, 0);
      }
    }
  }

  void copy(void* stream, void* to, const void* from, std::size_t bytes) override {
    require(calls_.MemcpyAsync, to, from, bytes, hipMemcpyDefault, handle(stream));
  }

  /// No document says that kernels reach memory which is mapped on another GPU.
  bool kernels_reach(const void* at) override {
    hipPointerAttribute_t attributes{};
    return calls_.PointerGetAttributes(&attributes, at) == hipSuccess &&
           (type_of(attributes) != hipMemoryTypeDevice || attributes.device == current_device());
  }

  bool atomic_in(int device, const GpuId& of) override { return id_of(device) == of; }

  void call(void* stream, void (*function)(void*), void* argument) override {
    if (calls_.LaunchHostFunc.address == nullptr) throw GpuError("this HIP has no host functions");
    VendorDriver::call(stream, function, argument);
  }

  std::optional<GpuMemory> find(const void* at) override {
    hipPointerAttribute_t attributes{};
    if (calls_.PointerGetAttributes(&attributes, at) != hipSuccess || attributes.isManaged != 0 ||
        type_of(attributes) != hipMemoryTypeDevice)
      return std::nullopt;
    GpuMemory memory;
    hipDeviceptr_t data = nullptr;
    require(calls_.MemGetAddressRange, &data, &memory.bytes, address(at));
    memory.device = attributes.device;
    memory.data = static_cast<std::byte*>(data);
    if (calls_.PointerGetAttribute(&memory.id, HIP_POINTER_ATTRIBUTE_BUFFER_ID, address(at)) != hipSuccess)
      memory.id = reinterpret_cast<std::uintptr_t>(data);
    return memory;
  }

  GpuMemory allocate(int device, std::size_t bytes) override {
    const Apart apart(*this, device);
    void* data = nullptr;
    require(calls_.Malloc, &data, bytes);
    return {device, static_cast<std::byte*>(data), bytes};
  }

  void free(const GpuMemory& memory) noexcept override {
    on_device(memory.device, [&] { require(calls_.Free, memory.data); });
  }

  /// HIP does not tell the pool of memory (up to 6.2), and gives a handle for memory of hipMallocAsync too.
  std::optional<GpuExport> share(const GpuMemory& memory) override {
    GpuExport share;
    hipIpcMemHandle_t ipc{};
    if (calls_.IpcGetMemHandle(&ipc, memory.data) != hipSuccess) return std::nullopt;
    share.names.handle = std::bit_cast<GpuHandle>(ipc);
    share.names.device = id_of(memory.device);
    return share;
  }

  GpuMemory map(const GpuExport& what, std::size_t bytes) override {
    const int device = find_device(what.names.device).value_or(0);
    const Apart apart(*this, device);
    const auto ipc = std::bit_cast<hipIpcMemHandle_t>(what.names.handle);
    void* at = nullptr;
    require(calls_.IpcOpenMemHandle, &at, ipc, hipIpcMemLazyEnablePeerAccess);
    return {device, static_cast<std::byte*>(at), bytes, 0, GpuMemory::Got::opened};
  }

  void unmap(const GpuMemory& memory) noexcept override {
    on_device(memory.device, [&] { require(calls_.IpcCloseMemHandle, memory.data); });
  }

  /// HIP tells the begin and the length of pinned memory.
  std::size_t reached(const void* at) override {
    hipPointerAttribute_t attributes{};
    if (calls_.PointerGetAttributes(&attributes, at) != hipSuccess) return 0;
    if (type_of(attributes) != hipMemoryTypeHost && attributes.isManaged == 0) return 0;
    hipDeviceptr_t data = nullptr;
    std::size_t bytes = 0;
    if (calls_.MemGetAddressRange(&data, &bytes, address(at)) != hipSuccess) return 0;
    const auto offset = reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(data);
    return offset < bytes ? bytes - offset : 0;
  }

  void* reach(void* pages, std::size_t bytes, Pages what) override {
    const Apart apart(*this, current_device());
    const unsigned registers = what == Pages::registers ? hipHostRegisterIoMemory : 0;
    require(calls_.HostRegister, pages, bytes, hipHostRegisterPortable | hipHostRegisterMapped | registers);
    void* at = nullptr;
    require(calls_.HostGetDevicePointer, &at, pages, 0);
    if (what == Pages::registers || at == pages) return at;
    give_up(pages);
    throw GpuError("the GPU sees host memory at other addresses than the processor");
  }

  void give_up(void* pages) noexcept override {
    on_device(current_device(), [&] { require(calls_.HostUnregister, pages); });
  }

 private:
  std::string start() {
    int count = 0;
    if (calls_.Init(0) != hipSuccess || calls_.GetDeviceCount(&count) != hipSuccess || count == 0)
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
      hipUUID uuid{};
      if (calls_.DeviceGetUuid(&uuid, i) != hipSuccess) return "GPU " + std::to_string(i) + " does not answer";
      add_device(uuid);
    }
    return {};
  }

  int attribute(int device, hipDeviceAttribute_t which) const {
    int value = 0;
    return calls_.DeviceGetAttribute(&value, which, device) == hipSuccess ? value : 0;
  }
};

base::OnePerProcess<Hip> g_hip;

}  // namespace

Driver& hip_driver() { return *g_hip; }

}  // namespace sluice::device
