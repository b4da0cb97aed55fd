// SPDX-License-Identifier: Apache-2.0
// CUDA's driver, loaded at run time: its functions, GPUs, their contexts and streams.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>

#include "device/vendor_driver.hpp"

namespace sluice::device {

struct CudaCalls {
  using Result = CUresult;
  using StreamHandle = CUstream;
  using CaptureMode = CUstreamCaptureMode;
  using Module = CUmodule;
  using Function = CUfunction;
  static constexpr const char* kName = "cuda";
  static constexpr Stream::Kind kKind = Stream::Kind::cuda;
  static constexpr Result kSuccess = CUDA_SUCCESS;
  static constexpr Result kNotReady = CUDA_ERROR_NOT_READY;
  static constexpr Result kOutOfMemory = CUDA_ERROR_OUT_OF_MEMORY;
  static constexpr CaptureMode kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  static constexpr unsigned kNonBlocking = CU_STREAM_NON_BLOCKING;
  static constexpr auto kStream = &Stream::cuda;
  static constexpr auto kKernels = &cuda_kernels;

  static CUdeviceptr address(const void* pointer) noexcept { return reinterpret_cast<CUdeviceptr>(pointer); }

  // cuda.h defines some of the names as macros that choose a version of the function; the driver is given the name
  // itself.
  Symbols all;
  Call<decltype(::cuInit)> Init{all, "cuInit"};
  Call<decltype(::cuDriverGetVersion)> DriverGetVersion{all, "cuDriverGetVersion"};
  Call<decltype(::cuGetErrorName)> GetErrorName{all, "cuGetErrorName"};
  Call<decltype(::cuDeviceGetCount)> DeviceGetCount{all, "cuDeviceGetCount"};
  Call<decltype(::cuDeviceGet)> DeviceGet{all, "cuDeviceGet"};
  Call<decltype(::cuDeviceGetName)> DeviceGetName{all, "cuDeviceGetName"};
  Call<decltype(::cuDeviceGetUuid)> DeviceGetUuid{all, "cuDeviceGetUuid"};
  Call<decltype(::cuDeviceGetPCIBusId)> DeviceGetPCIBusId{all, "cuDeviceGetPCIBusId"};
  Call<decltype(::cuDeviceTotalMem)> DeviceTotalMem{all, "cuDeviceTotalMem"};
  Call<decltype(::cuDeviceGetAttribute)> DeviceGetAttribute{all, "cuDeviceGetAttribute"};
  Call<decltype(::cuDeviceCanAccessPeer)> DeviceCanAccessPeer{all, "cuDeviceCanAccessPeer"};
  Call<decltype(::cuDeviceGetP2PAttribute)> DeviceGetP2PAttribute{all, "cuDeviceGetP2PAttribute"};
  Call<decltype(::cuDevicePrimaryCtxRetain)> DevicePrimaryCtxRetain{all, "cuDevicePrimaryCtxRetain"};
  Call<decltype(::cuCtxGetCurrent)> CtxGetCurrent{all, "cuCtxGetCurrent"};
  Call<decltype(::cuCtxGetDevice)> CtxGetDevice{all, "cuCtxGetDevice"};
  Call<decltype(::cuCtxPushCurrent)> CtxPushCurrent{all, "cuCtxPushCurrent"};
  Call<decltype(::cuCtxPopCurrent)> CtxPopCurrent{all, "cuCtxPopCurrent"};
  Call<decltype(::cuStreamGetCtx)> StreamGetCtx{all, "cuStreamGetCtx"};
  Call<decltype(::cuStreamGetId)> StreamGetId{all, "cuStreamGetId"};
  Call<decltype(::cuStreamSynchronize)> StreamSynchronize{all, "cuStreamSynchronize"};
  Call<decltype(::cuStreamQuery)> StreamQuery{all, "cuStreamQuery"};
  Call<decltype(::cuStreamBatchMemOp)> StreamBatchMemOp{all, "cuStreamBatchMemOp"};
  Call<decltype(::cuThreadExchangeStreamCaptureMode)> ThreadExchangeStreamCaptureMode{
      all, "cuThreadExchangeStreamCaptureMode"};
  Call<decltype(::cuMemcpyAsync)> MemcpyAsync{all, "cuMemcpyAsync"};
  Call<decltype(::cuMemsetD8Async)> MemsetAsync{all, "cuMemsetD8Async"};
  Call<decltype(::cuMemAlloc)> MemAlloc{all, "cuMemAlloc"};
  Call<decltype(::cuMemFree)> MemFree{all, "cuMemFree"};
  Call<decltype(::cuMemFreeAsync)> MemFreeAsync{all, "cuMemFreeAsync"};
  Call<decltype(::cuMemHostRegister)> MemHostRegister{all, "cuMemHostRegister"};
  Call<decltype(::cuMemHostUnregister)> MemHostUnregister{all, "cuMemHostUnregister"};
  Call<decltype(::cuPointerGetAttribute)> PointerGetAttribute{all, "cuPointerGetAttribute"};
  Call<decltype(::cuMemGetAddressRange)> MemGetAddressRange{all, "cuMemGetAddressRange"};
  Call<decltype(::cuMemGetAllocationGranularity)> MemGetAllocationGranularity{all, "cuMemGetAllocationGranularity"};
  Call<decltype(::cuMemCreate)> MemCreate{all, "cuMemCreate"};
  Call<decltype(::cuMemAddressReserve)> MemAddressReserve{all, "cuMemAddressReserve"};
  Call<decltype(::cuMemMap)> MemMap{all, "cuMemMap"};
  Call<decltype(::cuMemSetAccess)> MemSetAccess{all, "cuMemSetAccess"};
  Call<decltype(::cuMemRetainAllocationHandle)> MemRetainAllocationHandle{all, "cuMemRetainAllocationHandle"};
  Call<decltype(::cuMemExportToShareableHandle)> MemExportToShareableHandle{all, "cuMemExportToShareableHandle"};
  Call<decltype(::cuMemImportFromShareableHandle)> MemImportFromShareableHandle{all, "cuMemImportFromShareableHandle"};
  Call<decltype(::cuMemUnmap)> MemUnmap{all, "cuMemUnmap"};
  Call<decltype(::cuMemRelease)> MemRelease{all, "cuMemRelease"};
  Call<decltype(::cuMemAddressFree)> MemAddressFree{all, "cuMemAddressFree"};
  Call<decltype(::cuMemPoolExportToShareableHandle)> MemPoolExportToShareableHandle{all,
                                                                                    "cuMemPoolExportToShareableHandle"};
  Call<decltype(::cuMemPoolImportFromShareableHandle)> MemPoolImportFromShareableHandle{
      all, "cuMemPoolImportFromShareableHandle"};
  Call<decltype(::cuMemPoolExportPointer)> MemPoolExportPointer{all, "cuMemPoolExportPointer"};
  Call<decltype(::cuMemPoolImportPointer)> MemPoolImportPointer{all, "cuMemPoolImportPointer"};
  Call<decltype(::cuMemPoolSetAccess)> MemPoolSetAccess{all, "cuMemPoolSetAccess"};
  Call<decltype(::cuMemPoolDestroy)> MemPoolDestroy{all, "cuMemPoolDestroy"};
  Call<decltype(::cuIpcGetMemHandle)> IpcGetMemHandle{all, "cuIpcGetMemHandle"};
  Call<decltype(::cuIpcOpenMemHandle)> IpcOpenMemHandle{all, "cuIpcOpenMemHandle"};
  Call<decltype(::cuIpcCloseMemHandle)> IpcCloseMemHandle{all, "cuIpcCloseMemHandle"};
  Call<decltype(::cuLaunchHostFunc)> LaunchHostFunc{all, "cuLaunchHostFunc"};
  Call<decltype(::cuLaunchKernel)> LaunchKernel{all, "cuLaunchKernel"};
  Call<decltype(::cuModuleLoadData)> ModuleLoadData{all, "cuModuleLoadData"};
  Call<decltype(::cuModuleGetFunction)> ModuleGetFunction{all, "cuModuleGetFunction"};
  Call<decltype(::cuMemHostGetDevicePointer)> MemHostGetDevicePointer{all, "cuMemHostGetDevicePointer"};
  Call<decltype(::cuStreamCreateWithPriority)> StreamCreateWithPriority{all, "cuStreamCreateWithPriority"};
  Call<decltype(::cuCtxSynchronize)> CtxSynchronize{all, "cuCtxSynchronize"};
  // The function of version 12.0; cuda.h may declare a later one.
  Call<CUresult(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, std::size_t*)>
      StreamGetCaptureInfo{all, "cuStreamGetCaptureInfo"};

  /// Loads the functions. Returns why there are none; empty: all are there.
  std::string load() {
    constexpr int kVersion = 12000;  // the oldest whose calls are as we use them
    constexpr const char* kTooOld = "the CUDA driver is older than version 12.0";
    void* const library = dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return "there is no CUDA driver (libcuda.so.1)";
    const auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(library, "cuGetProcAddress_v2"));
    if (find == nullptr) return kTooOld;
    for (Symbol* const one : all) {
      const CUresult found = find(one->name, &one->address, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);
      if (found != CUDA_SUCCESS || one->address == nullptr) return kTooOld;
    }
    return {};
  }

  std::string text_of(Result result) const {
    const char* text = nullptr;
    return GetErrorName(result, &text) == CUDA_SUCCESS ? text : "an unknown error";
  }

  static std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
};

class CudaStreams : public VendorDriver<CudaCalls> {
 public:
  base::Facts facts(int device) override {
    const auto has = [&](CUdevice_attribute which) { return attribute(device, which) != 0; };
    return facts_of(device, device_handle(device), has(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS),
                    has(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES),
                    has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
                    has(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED));
  }

  int current_device() override {
    CUdevice device = 0;
    return calls_.CtxGetDevice(&device) == CUDA_SUCCESS ? ordinal(device) : 0;
  }

  bool orders_writes_of_others(int device) override {
    return attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
           CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  }

  /// Verbs call this each time, so a thread caches the streams that it used last, by their ids, which are unique for
  /// ever.
  StreamState look_at(void* stream) override {
    struct Known {
      unsigned long long id = 0;
      int device = -1;
    };
    static thread_local std::array<Known, 8> known;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t capture = 0;
    // The legacy stream cannot be captured, and this call on it fails while another stream captures.
    const CUresult asked = calls_.StreamGetCaptureInfo(handle(stream), &status, &capture, nullptr, nullptr, nullptr);
    CUcontext now = nullptr;
    if (asked == CUDA_ERROR_INVALID_CONTEXT && calls_.CtxGetCurrent(&now) == CUDA_SUCCESS && now == nullptr) {
      const OnDevice first(*this, 0);  // as in the CUDA runtime, a thread that has chosen no GPU uses the first
      return look_at(stream);
    }
    // On a stream that captures, a call for its id fails, and makes the capture invalid; then a call for its context
    // fails.
    if (asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) throw InvalidCapture();
    if (asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return {look_up(stream), capture};
    unsigned long long id = 0;
    require(calls_.StreamGetId, handle(stream), &id);
    Known& last = known[id % known.size()];
    if (last.device < 0 || last.id != id) last = {id, look_up(stream)};
    return {last.device, 0};
  }

  void* enter(int device) override {
    CUcontext now = nullptr;
    CUcontext wanted = context(device);
    require(calls_.CtxGetCurrent, &now);
    if (now == wanted) return nullptr;
    require(calls_.CtxPushCurrent, wanted);
    return wanted;
  }

  void leave(void* entered) noexcept override {
    CUcontext popped = nullptr;
    if (entered != nullptr) calls_.CtxPopCurrent(&popped);
  }

  void operate(void* stream, std::span<const WordOp> ops) override {
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
      require(calls_.StreamBatchMemOp, handle(stream), static_cast<unsigned>(count), batch, 0);
      ops = ops.subspan(count);
    }
  }

  void copy(void* stream, void* to, const void* from, std::size_t bytes) override {
    require(calls_.MemcpyAsync, address(to), address(from), bytes, handle(stream));
  }

 protected:
  CudaStreams() {
    if (why_not_.empty()) why_not_ = start();
  }

  CUdevice device_handle(int device) const { return gpus_.at(static_cast<std::size_t>(device)).device; }

  int attribute(int device, CUdevice_attribute which) const {
    int value = 0;
    return calls_.DeviceGetAttribute(&value, which, device_handle(device)) == CUDA_SUCCESS ? value : 0;
  }

  std::atomic<int> home_{-1};  // the first GPU that was used

 private:
  /// A GPU here. Its streams are those of its primary context, which the runtime API uses.
  struct Gpu {
    CUdevice device = 0;
    std::atomic<CUcontext> context{nullptr};  // retained at first use: it takes memory of the GPU
  };

  std::string start() {
    const CUresult result = calls_.Init(0);
    if (result == CUDA_ERROR_NO_DEVICE) return "no NVIDIA GPU is here";
    if (result != CUDA_SUCCESS) return "cuInit failed with error " + std::to_string(static_cast<int>(result));
    int count = 0;
    if (calls_.DeviceGetCount(&count) != CUDA_SUCCESS || count == 0) return "no NVIDIA GPU is here";
    for (int i = 0; i < count; ++i) {
      CUuuid uuid{};
      Gpu& gpu = gpus_.emplace_back();
      if (calls_.DeviceGet(&gpu.device, i) != CUDA_SUCCESS || calls_.DeviceGetUuid(&uuid, gpu.device) != CUDA_SUCCESS)
        return "GPU " + std::to_string(i) + " does not answer";
      add_device(uuid);
      // With this attribute, the processor and the GPU have one address for host memory.
      if (attribute(i, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) == 0)
        return "GPU " + std::to_string(i) + " sees host memory at other addresses than the processor";
      if (attribute(i, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 0 && !words_by_kernels())
        return "streams of GPU " + std::to_string(i) + " cannot wait for words of 64 bits" + kKernelsCan;
    }
    return {};
  }

  int ordinal(CUdevice device) const {
    const auto is = [&](const Gpu& gpu) { return gpu.device == device; };
    return static_cast<int>(std::find_if(gpus_.begin(), gpus_.end(), is) - gpus_.begin());
  }

  CUcontext context(int device) {
    Gpu& gpu = gpus_.at(static_cast<std::size_t>(device));
    CUcontext known = gpu.context;
    if (known != nullptr) return known;
    const std::lock_guard lock(mutex_);
    known = gpu.context;
    if (known != nullptr) return known;
    require(calls_.DevicePrimaryCtxRetain, &known, gpu.device);
    if (home_ < 0) home_ = device;
    gpu.context = known;
    return known;
  }

  int look_up(void* stream) {
    CUcontext own = nullptr;
    CUdevice device = 0;
    require(calls_.StreamGetCtx, handle(stream), &own);
    require(calls_.CtxPushCurrent, own);
    const CUresult result = calls_.CtxGetDevice(&device);
    CUcontext popped = nullptr;
    calls_.CtxPopCurrent(&popped);
    check(result, "cuCtxGetDevice");
    // Creates no context on another GPU: a context takes memory, and a GPU may be reserved for another process.
    if (context(ordinal(device)) == own) return ordinal(device);
    throw GpuError("the stream is not of the primary context of a GPU, which the CUDA runtime uses");
  }

  /// Does without `Apart`, because a context that has failed may refuse to become current, too.
  bool has_failed(int device, void* stream) noexcept override {
    CUcontext popped = nullptr;
    const CUresult pushed = calls_.CtxPushCurrent(gpus_[static_cast<std::size_t>(device)].context.load());
    if (pushed != CUDA_SUCCESS) return is_failure(pushed);
    const bool failed = VendorDriver::has_failed(device, stream);
    calls_.CtxPopCurrent(&popped);
    return failed;
  }

  std::deque<Gpu> gpus_;
  std::mutex mutex_;  // contexts
};

}  // namespace sluice::device
