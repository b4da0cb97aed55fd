// SPDX-License-Identifier: Apache-2.0
// HIP's runtime. What
// cuda.cpp has and this has not: memory that goes to other processes by a descriptor, and operations on words in
// batches, both of which came after HIP 5.2.
#include <cstdlib>
#include <cstring>

#include "base/fork.hpp"
#include "device/hip_calls.hpp"
#include "device/vendor_driver.hpp"
#include "device/vendors.hpp"

namespace sluice::device {

namespace {

hipMemoryType type_of(const hipPointerAttribute_t& attributes) noexcept {
#if HIP_VERSION_MAJOR >= 6
  return attributes.type;
#else
  return attributes.memoryType;
#endif
}

hipDeviceptr_t address(const void* pointer) noexcept { return const_cast<void*>(pointer); }

class Hip final : public VendorDriver {
 public:
  Hip() {
    const std::string why = load(calls_);
    set_why_not(why.empty() ? start() : why);
  }

  Stream::Kind kind() const noexcept override { return Stream::Kind::hip; }
  const char* name() const noexcept override { return "hip"; }
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
  bool kernels_reach(const void* at) override;
  void call(void* stream, void (*function)(void*), void* argument) override {
    if (calls_.hipLaunchHostFunc == nullptr) throw GpuError("this HIP has no host functions");
    check(calls_.hipLaunchHostFunc(static_cast<hipStream_t>(stream), function, argument), "hipLaunchHostFunc");
  }
  void synchronize(void* stream) override {
    check(calls_.hipStreamSynchronize(static_cast<hipStream_t>(stream)), "hipStreamSynchronize");
  }

  std::optional<GpuMemory> find(const void* at) override;
  GpuMemory allocate(int device, std::size_t bytes) override;
  void free(const GpuMemory& memory) noexcept override {
    on_device(memory.device, [&] { check(calls_.hipFree(memory.data), "hipFree"); });
  }
  std::optional<GpuExport> share(const GpuMemory& memory) override;
  GpuMemory map(const GpuExport& what, std::size_t bytes) override;
  void unmap(const GpuMemory& memory) noexcept override {
    on_device(memory.device, [&] { check(calls_.hipIpcCloseMemHandle(memory.data), "hipIpcCloseMemHandle"); });
  }

  std::size_t reached(const void* at) override;
  void reach(void* pages, std::size_t bytes) override;
  void* reach_registers(void* pages, std::size_t bytes) override;
  void give_up(void* pages) noexcept override {
    on_device(current_device(), [&] { check(calls_.hipHostUnregister(pages), "hipHostUnregister"); });
  }

 private:
  std::string start();
  int exchange_capture_mode(int mode) noexcept override;
  void* new_stream() override;
  Stream public_stream(void* stream) const noexcept override { return Stream::hip(static_cast<hipStream_t>(stream)); }
  bool has_failed(int device, void* stream) noexcept override;
  void* load_module() override;
  void* find_function(void* module, const char* name) override;
  void launch(void* function, void* stream, const Launch& what) override;
  void zero(void* stream, const GpuMemory& memory) override;
  static void check(hipError_t result, const char* call) {
    if (result != hipSuccess) throw GpuError(std::string(call) + ": error " + std::to_string(result) + " of HIP");
  }
  int attribute(int device, hipDeviceAttribute_t which) const {
    int value = 0;
    return calls_.hipDeviceGetAttribute(&value, which, device) == hipSuccess ? value : 0;
  }

  HipCalls calls_;
  std::vector<hipUUID> uuids_;
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
    add_device();
    if (calls_.hipDeviceGetUuid(&uuids_.emplace_back(), i) != hipSuccess)
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

static_assert(hipStreamCaptureModeRelaxed == 2);

int Hip::exchange_capture_mode(int mode) noexcept {
  auto exchanged = static_cast<hipStreamCaptureMode>(mode);
  static_cast<void>(calls_.hipThreadExchangeStreamCaptureMode(&exchanged));
  return exchanged;
}

void* Hip::new_stream() {
  hipStream_t stream = nullptr;
  check(calls_.hipStreamCreateWithPriority(&stream, hipStreamNonBlocking, kHighest), "hipStreamCreateWithPriority");
  return stream;
}

bool Hip::has_failed(int, void* stream) noexcept {
  const int mode = exchange_capture_mode(kRelaxed);
  const hipError_t result = calls_.hipStreamQuery(static_cast<hipStream_t>(stream));
  exchange_capture_mode(mode);
  return result != hipSuccess && result != hipErrorNotReady && result != hipErrorOutOfMemory;
}

void* Hip::load_module() {
  hipModule_t module = nullptr;
  check(calls_.hipModuleLoadData(&module, hip_kernels().data()), "hipModuleLoadData");
  return module;
}

void* Hip::find_function(void* module, const char* name) {
  hipFunction_t function = nullptr;
  check(calls_.hipModuleGetFunction(&function, static_cast<hipModule_t>(module), name), "hipModuleGetFunction");
  return function;
}

void Hip::launch(void* function, void* stream, const Launch& what) {
  void* parameters[] = {what.args};
  check(calls_.hipModuleLaunchKernel(static_cast<hipFunction_t>(function), what.blocks, what.rows, 1, what.threads, 1,
                                     1, 0, static_cast<hipStream_t>(stream), parameters, nullptr),
        "hipModuleLaunchKernel");
}

void Hip::zero(void* stream, const GpuMemory& memory) {
  check(calls_.hipMemsetAsync(memory.data, 0, memory.bytes, static_cast<hipStream_t>(stream)), "hipMemsetAsync");
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
  std::memcpy(names.device.data(), uuids_.at(static_cast<std::size_t>(memory.device)).bytes, names.device.size());
  return share;
}

GpuMemory Hip::map(const GpuExport& what, std::size_t bytes) {
  int device = 0;
  for (int i = 0; i < devices(); ++i) {
    if (std::memcmp(uuids_[static_cast<std::size_t>(i)].bytes, what.names.device.data(), what.names.device.size()) == 0)
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
