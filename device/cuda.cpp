// SPDX-License-Identifier: Apache-2.0
// CUDA's driver: GPUs, their contexts, streams and kernels.
#include "device/cuda.hpp"

#include <cstring>

#include "base/fork.hpp"
#include "device/vendors.hpp"

namespace sluice::device {

std::string Cuda::start() {
  const CUresult result = calls_.cuInit(0);
  if (result == CUDA_ERROR_NO_DEVICE) return "no NVIDIA GPU is here";
  if (result != CUDA_SUCCESS) return "cuInit failed with error " + std::to_string(static_cast<int>(result));
  int count = 0;
  if (calls_.cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) return "no NVIDIA GPU is here";
  for (int i = 0; i < count; ++i) {
    Gpu& gpu = gpus_.emplace_back();
    add_device();
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

static_assert(CU_STREAM_CAPTURE_MODE_RELAXED == 2);

int Cuda::exchange_capture_mode(int mode) noexcept {
  auto exchanged = static_cast<CUstreamCaptureMode>(mode);
  calls_.cuThreadExchangeStreamCaptureMode(&exchanged);
  return exchanged;
}

void* Cuda::new_stream() {
  CUstream stream = nullptr;
  check(calls_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, kHighest), "cuStreamCreateWithPriority");
  return stream;
}

/// Not by `Apart`: a context that has failed may refuse to be made current, too.
bool Cuda::has_failed(int device, void* stream) noexcept {
  CUcontext popped = nullptr;
  CUresult result = calls_.cuCtxPushCurrent(gpus_[static_cast<std::size_t>(device)].context);
  if (result == CUDA_SUCCESS) {
    const int mode = exchange_capture_mode(kRelaxed);
    result = calls_.cuStreamQuery(static_cast<CUstream>(stream));
    exchange_capture_mode(mode);
    calls_.cuCtxPopCurrent(&popped);
  }
  return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY && result != CUDA_ERROR_OUT_OF_MEMORY;
}

void* Cuda::load_module() {
  CUmodule module = nullptr;
  check(calls_.cuModuleLoadData(&module, cuda_kernels().data()), "cuModuleLoadData");
  return module;
}

void* Cuda::find_function(void* module, const char* name) {
  CUfunction function = nullptr;
  check(calls_.cuModuleGetFunction(&function, static_cast<CUmodule>(module), name), "cuModuleGetFunction");
  return function;
}

void Cuda::launch(void* function, void* stream, const Launch& what) {
  void* parameters[] = {what.args};
  check(calls_.cuLaunchKernel(static_cast<CUfunction>(function), what.blocks, what.rows, 1, what.threads, 1, 1, 0,
                              static_cast<CUstream>(stream), parameters, nullptr),
        "cuLaunchKernel");
}

void Cuda::zero(void* stream, const GpuMemory& memory) {
  check(calls_.cuMemsetD8Async(address(memory.data), 0, memory.bytes, static_cast<CUstream>(stream)),
        "cuMemsetD8Async");
}

namespace {

base::OnePerProcess<Cuda> g_cuda;

}  // namespace

Driver& cuda_driver() { return *g_cuda; }

}  // namespace sluice::device
