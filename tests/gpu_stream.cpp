// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_stream.hpp"

#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#ifdef SLUICE_TESTS_HAVE_CUDA
#include <cuda.h>
#include <dlfcn.h>

#include "tests/gpu_kernels.hpp"

namespace sluice::device {
std::span<const std::byte> cuda_relay() noexcept;  // tests/device/relay.cu
}

namespace sluice::test {
namespace {

#define SLUICE_CALLS(X)       \
  X(cuInit)                   \
  X(cuDeviceGet)              \
  X(cuDevicePrimaryCtxRetain) \
  X(cuCtxSetCurrent)          \
  X(cuModuleLoadData)         \
  X(cuModuleGetFunction)      \
  X(cuLaunchKernel)           \
  X(cuStreamCreate)           \
  X(cuStreamDestroy)          \
  X(cuStreamSynchronize)      \
  X(cuStreamBeginCapture)     \
  X(cuStreamEndCapture)       \
  X(cuGraphInstantiate)       \
  X(cuGraphLaunch)            \
  X(cuGraphDestroy)           \
  X(cuGraphExecDestroy)       \
  X(cuLaunchHostFunc)         \
  X(cuMemcpyAsync)            \
  X(cuMemAlloc)               \
  X(cuMemFree)                \
  X(cuMemAllocHost)           \
  X(cuMemFreeHost)

#define SLUICE_QUOTED(call) #call

class Cuda {
 public:
  static Cuda& here() {
    static Cuda cuda;
    return cuda;
  }

// NOLINTBEGIN(bugprone-macro-parentheses): names
#define SLUICE_DECLARE(call) decltype(&::call) call = nullptr;
  SLUICE_CALLS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
  std::string why_not;

  void check(CUresult result) const {
    if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA error " + std::to_string(static_cast<int>(result)));
  }
  /// Of the calling thread.
  void use() const {
    if (!why_not.empty()) throw std::runtime_error(why_not);
    check(cuCtxSetCurrent(context_));
  }

 private:
  Cuda() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    why_not = library == nullptr ? "no libcuda.so.1" : start(library);
  }

  std::string start(void* library) {
    // The name of the version that the header's macro chose.
#define SLUICE_GET(call)                                                           \
  call = reinterpret_cast<decltype(&::call)>(dlsym(library, SLUICE_QUOTED(call))); \
  if (call == nullptr) return "the driver has no " SLUICE_QUOTED(call);
    SLUICE_CALLS(SLUICE_GET)
#undef SLUICE_GET
    // NOLINTEND(bugprone-macro-parentheses)
    add_kernels(library);
    CUdevice device = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return "no GPU is here";
    if (cuDevicePrimaryCtxRetain(&context_, device) != CUDA_SUCCESS) return "the GPU cannot be used";
    return {};
  }

  CUcontext context_ = nullptr;
};

}  // namespace

const std::string& why_no_gpu() { return Cuda::here().why_not; }

GpuStream::GpuStream() {
  Cuda& cuda = Cuda::here();
  cuda.use();
  cuda.check(cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
}

GpuStream::~GpuStream() { Cuda::here().cuStreamDestroy(stream_); }

Stream GpuStream::stream() const noexcept { return Stream::cuda(stream_); }

void GpuStream::run(std::function<void()> work) {
  constexpr CUhostFn again = [](void* held) { (*static_cast<std::function<void()>*>(held))(); };
  constexpr CUhostFn once = [](void* held) {
    const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(held));
    again(held);
  };
  auto held = std::make_unique<std::function<void()>>(std::move(work));
  Cuda& cuda = Cuda::here();
  cuda.check(cuda.cuLaunchHostFunc(stream_, captured_ ? again : once, held.get()));
  captured_ ? captured_->push_back(std::move(held)) : static_cast<void>(held.release());
}

void GpuStream::copy(void* to, const void* from, std::size_t bytes) {
  Cuda& cuda = Cuda::here();
  cuda.check(
      cuda.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes, stream_));
}

void GpuStream::synchronize() { Cuda::here().check(Cuda::here().cuStreamSynchronize(stream_)); }

GpuGraph::GpuGraph(GpuStream& stream, const std::function<void()>& work, CaptureMode mode) {
  Cuda& cuda = Cuda::here();
  cuda.check(cuda.cuStreamBeginCapture(stream.stream_, static_cast<CUstreamCaptureMode>(mode)));
  stream.captured_ = &functions_;
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  stream.captured_ = nullptr;
  CUgraph graph = nullptr;
  CUresult result = cuda.cuStreamEndCapture(stream.stream_, &graph);
  if (graph != nullptr) {
    if (!failure) result = cuda.cuGraphInstantiate(&exec_, graph, 0);
    cuda.cuGraphDestroy(graph);
  }
  if (failure) std::rethrow_exception(failure);
  cuda.check(result);
}

GpuGraph::~GpuGraph() { Cuda::here().cuGraphExecDestroy(exec_); }

void GpuGraph::launch(GpuStream& on) { Cuda::here().check(Cuda::here().cuGraphLaunch(exec_, on.stream_)); }

GpuKernel::GpuKernel(const char* name) {
  Cuda& cuda = Cuda::here();
  cuda.use();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  cuda.check(cuda.cuModuleLoadData(&module, device::cuda_relay().data()));
  cuda.check(cuda.cuModuleGetFunction(&function, module, name));
  function_ = function;
}

void GpuKernel::launch(GpuStream& on, void* args, unsigned threads) const {
  Cuda& cuda = Cuda::here();
  cuda.use();
  cuda.check(
      cuda.cuLaunchKernel(static_cast<CUfunction>(function_), 1, 1, 1, threads, 1, 1, 0, on.stream_, &args, nullptr));
}

GpuBuffer::GpuBuffer(std::size_t bytes) {
  Cuda& cuda = Cuda::here();
  cuda.use();
  CUdeviceptr data = 0;
  cuda.check(cuda.cuMemAlloc(&data, bytes));
  data_ = reinterpret_cast<std::byte*>(data);
}

GpuBuffer::~GpuBuffer() { Cuda::here().cuMemFree(reinterpret_cast<CUdeviceptr>(data_)); }

PinnedBuffer::PinnedBuffer(std::size_t bytes) {
  Cuda& cuda = Cuda::here();
  cuda.use();
  void* data = nullptr;
  cuda.check(cuda.cuMemAllocHost(&data, bytes));
  data_ = static_cast<std::byte*>(data);
}

PinnedBuffer::~PinnedBuffer() { Cuda::here().cuMemFreeHost(data_); }

void gpu_copy(void* to, const void* from, std::size_t bytes) {
  GpuStream aside;
  aside.copy(to, from, bytes);
  aside.synchronize();
}

}  // namespace sluice::test

#else

namespace sluice::test {

namespace {
[[noreturn]] void refuse() { throw std::runtime_error(why_no_gpu()); }
}  // namespace

const std::string& why_no_gpu() {
  static const std::string why = "this build has no CUDA part";
  return why;
}
GpuStream::GpuStream() { refuse(); }
GpuStream::~GpuStream() = default;
Stream GpuStream::stream() const noexcept { return Stream::cuda(stream_); }
void GpuStream::run(std::function<void()>) { refuse(); }
void GpuStream::copy(void*, const void*, std::size_t) { refuse(); }
void GpuStream::synchronize() {}
GpuGraph::GpuGraph(GpuStream&, const std::function<void()>&, CaptureMode) { refuse(); }
GpuGraph::~GpuGraph() = default;
void GpuGraph::launch(GpuStream&) { refuse(); }
GpuKernel::GpuKernel(const char*) { refuse(); }
void GpuKernel::launch(GpuStream&, void*, unsigned) const { refuse(); }
GpuBuffer::GpuBuffer(std::size_t) { refuse(); }
GpuBuffer::~GpuBuffer() = default;
PinnedBuffer::PinnedBuffer(std::size_t) { refuse(); }
PinnedBuffer::~PinnedBuffer() = default;
void gpu_copy(void*, const void*, std::size_t) { refuse(); }

}  // namespace sluice::test

#endif
