// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_stream.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#ifdef SLUICE_TESTS_HAVE_CUDA
#include <cuda.h>
#include <dlfcn.h>

#include "tests/gpu_kernels.hpp"

namespace sluice::device {
std::span<const std::byte> cuda_programs() noexcept;  // tests/device/programs.cu
}

namespace sluice::test {
namespace {

#define SLUICE_CALLS(X)       \
  X(cuInit)                   \
  X(cuDeviceGetCount)         \
  X(cuDeviceGet)              \
  X(cuDeviceCanAccessPeer)    \
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
  X(cuMemPoolCreate)          \
  X(cuMemPoolDestroy)         \
  X(cuMemAllocFromPoolAsync)  \
  X(cuMemFreeAsync)           \
  X(cuPointerGetAttribute)    \
  X(cuMemAllocHost)           \
  X(cuMemFreeHost)

#define SLUICE_QUOTED(call) #call

/// True if only HIP is to be used.
bool is_hip() {
  static const char* const gpus = std::getenv("SLUICE_GPUS");
  return gpus != nullptr && gpus == std::string_view("hip");
}

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
  bool emulated = false;

  void check(CUresult result) const {
    if (result != CUDA_SUCCESS) throw std::runtime_error("CUDA error " + std::to_string(static_cast<int>(result)));
  }
  /// One for each kind, which stays; and the stream on which all of their memory is allocated and freed.
  CUmemoryPool pool(PoolKind kind, CUstream& order) {
    const std::lock_guard lock(mutex_);
    if (order_ == nullptr) check(cuStreamCreate(&order_, CU_STREAM_NON_BLOCKING));
    order = order_;
    CUmemoryPool& one = pools_.at(static_cast<std::size_t>(kind));
    if (one != nullptr) return one;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (kind == PoolKind::shareable) properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    check(cuMemPoolCreate(&one, &properties));
    return one;
  }
  void end_pool(PoolKind kind) {
    const std::lock_guard lock(mutex_);
    check(cuMemPoolDestroy(std::exchange(pools_.at(static_cast<std::size_t>(kind)), nullptr)));
  }
  static int& of_thread() {
    static thread_local int gpu = 0;
    return gpu;
  }
  /// By the calling thread.
  void use() const { use(of_thread()); }
  void use(int gpu) const {
    if (!why_not.empty()) throw std::runtime_error(why_not);
    check(cuCtxSetCurrent(context_));
    if (gpu == 0) return;
    CUdevice device = 0;
    CUcontext context = nullptr;
    check(cuDeviceGet(&device, gpu));
    check(cuDevicePrimaryCtxRetain(&context, device));  // for the rest of the process
    check(cuCtxSetCurrent(context));
  }
  bool of_host(const void* memory) const {
    CUmemorytype type{};
    const auto at = reinterpret_cast<CUdeviceptr>(memory);
    return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS ||
           type != CU_MEMORYTYPE_DEVICE;
  }
  bool knows(const void* memory) const {
    CUmemorytype type{};
    return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(memory)) ==
           CUDA_SUCCESS;
  }
  void refuse(unsigned taken, unsigned refused, Refused when) const {
    refuse_(taken, refused, when == Refused::at_once ? 1 : 0);
  }
  bool refuses() const { return refuse_ != nullptr; }
  void fail_for_good() const {
    use();
    fail_(CUDA_ERROR_ILLEGAL_ADDRESS);
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
    emulated = add_kernels(library);
    // A program that uses HIP has it loaded.
    if (is_hip() && dlopen("libamdhip64.so", RTLD_NOW) == nullptr) return "no libamdhip64.so";
    refuse_ = reinterpret_cast<Refuse>(dlsym(library, "emucuda_refuse"));
    fail_ = reinterpret_cast<decltype(fail_)>(dlsym(library, "emucuda_fail"));
    CUdevice device = 0;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return "no GPU is here";
    if (cuDevicePrimaryCtxRetain(&context_, device) != CUDA_SUCCESS) return "the GPU cannot be used";
    return {};
  }

  using Refuse = void (*)(unsigned taken, unsigned refused, int at_once);

  CUcontext context_ = nullptr;
  Refuse refuse_ = nullptr;
  void (*fail_)(CUresult) = nullptr;
  std::mutex mutex_;
  CUstream order_ = nullptr;
  std::array<CUmemoryPool, 2> pools_{};
};

}  // namespace

const std::string& why_no_gpu() { return Cuda::here().why_not; }
bool gpu_is_emulated() { return Cuda::here().emulated; }

int gpus() {
  int count = 0;
  return why_no_gpu().empty() && Cuda::here().cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

bool gpus_reach_each_other() {
  const auto reaches = [](CUdevice from, CUdevice to) {
    int can = 0;
    return Cuda::here().cuDeviceCanAccessPeer(&can, from, to) == CUDA_SUCCESS && can != 0;
  };
  return gpus() > 1 && reaches(0, 1) && reaches(1, 0);
}

Refusals::Refusals(unsigned taken, unsigned refused, Refused when) { Cuda::here().refuse(taken, refused, when); }
Refusals::~Refusals() { Cuda::here().refuse(0, 0, Refused::at_once); }
bool Refusals::possible() { return Cuda::here().refuses(); }

void fail_gpu_for_good() { Cuda::here().fail_for_good(); }

bool gpu_knows(const void* at) {
  Cuda::here().use();
  return Cuda::here().knows(at);
}

void use_gpu_of_thread(int gpu) {
  Cuda::here().of_thread() = gpu;
  Cuda::here().use();
}

GpuStream::GpuStream(int gpu) {
  Cuda& cuda = Cuda::here();
  cuda.use(gpu);
  cuda.check(cuda.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  cuda.use();
}

GpuStream::GpuStream(StreamManner manner) {
  Cuda& cuda = Cuda::here();
  cuda.use();
  if (manner == StreamManner::per_thread) stream_ = CU_STREAM_PER_THREAD;
  if (manner == StreamManner::legacy || manner == StreamManner::per_thread) return;
  cuda.check(
      cuda.cuStreamCreate(&stream_, manner == StreamManner::blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
}

GpuStream::~GpuStream() {
  if (stream_ != nullptr && stream_ != CU_STREAM_PER_THREAD) Cuda::here().cuStreamDestroy(stream_);
}

Stream GpuStream::stream() const noexcept {
  return is_hip() ? Stream::hip(reinterpret_cast<ihipStream_t*>(stream_)) : Stream::cuda(stream_);
}

void GpuStream::run(std::function<void()> work) {
  constexpr CUhostFn again = [](void* held) { (*static_cast<std::function<void()>*>(held))(); };
  constexpr CUhostFn once = [](void* held) {
    const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(held));
    again(held);
  };
  auto held = std::make_unique<std::function<void()>>(std::move(work));
  Cuda& cuda = Cuda::here();
  if (captured_ == nullptr) make_room(1);
  cuda.check(cuda.cuLaunchHostFunc(stream_, captured_ ? again : once, held.get()));
  captured_ ? captured_->push_back(std::move(held)) : static_cast<void>(held.release());
}

void GpuStream::copy(void* to, const void* from, std::size_t bytes) {
  Cuda& cuda = Cuda::here();
  // The driver would make the host wait until the stream comes to it.
  if (cuda.of_host(to) && cuda.of_host(from)) return run([=] { std::memcpy(to, from, bytes); });
  cuda.check(
      cuda.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes, stream_));
}

void GpuStream::make_room(std::size_t functions) {
  constexpr std::size_t kMost = 40;  // an H100 takes 48, of which some are Sluice's
  if (ahead_ != 0 && ahead_ + functions > kMost) synchronize();
  ahead_ += functions;
}

void GpuStream::synchronize() {
  Cuda::here().check(Cuda::here().cuStreamSynchronize(stream_));
  ahead_ = 0;
}

GpuGraph::GpuGraph(GpuStream& stream, const std::function<void()>& work) {
  Cuda& cuda = Cuda::here();
  cuda.check(cuda.cuStreamBeginCapture(stream.stream_, static_cast<CUstreamCaptureMode>(capture_mode)));
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

void GpuGraph::launch(GpuStream& on) {
  if (on.captured_ == nullptr) on.make_room(functions_.size());
  Cuda::here().check(Cuda::here().cuGraphLaunch(exec_, on.stream_));
}

GpuKernel::GpuKernel(const char* name) {
  Cuda& cuda = Cuda::here();
  cuda.use();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  cuda.check(cuda.cuModuleLoadData(&module, device::cuda_programs().data()));
  cuda.check(cuda.cuModuleGetFunction(&function, module, name));
  function_ = function;
}

void GpuKernel::launch(GpuStream& on, void* args, unsigned threads) const {
  Cuda& cuda = Cuda::here();
  cuda.use();
  cuda.check(
      cuda.cuLaunchKernel(static_cast<CUfunction>(function_), 1, 1, 1, threads, 1, 1, 0, on.stream_, &args, nullptr));
}

GpuBuffer::GpuBuffer(std::size_t bytes) : GpuBuffer(bytes, Cuda::of_thread()) {}

GpuBuffer::GpuBuffer(std::size_t bytes, int gpu) {
  Cuda& cuda = Cuda::here();
  cuda.use(gpu);
  CUdeviceptr data = 0;
  cuda.check(cuda.cuMemAlloc(&data, bytes));
  cuda.use();
  data_ = reinterpret_cast<std::byte*>(data);
}

GpuBuffer::~GpuBuffer() { Cuda::here().cuMemFree(reinterpret_cast<CUdeviceptr>(data_)); }

PooledBuffer::PooledBuffer(PoolKind kind, std::size_t bytes) {
  Cuda& cuda = Cuda::here();
  cuda.use();
  CUdeviceptr data = 0;
  CUmemoryPool pool = cuda.pool(kind, order_);
  cuda.check(cuda.cuMemAllocFromPoolAsync(&data, bytes, pool, order_));
  cuda.check(cuda.cuStreamSynchronize(order_));
  data_ = reinterpret_cast<std::byte*>(data);
}

PooledBuffer::~PooledBuffer() {
  Cuda& cuda = Cuda::here();
  cuda.cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(data_), order_);
  cuda.cuStreamSynchronize(order_);
}

void PooledBuffer::end_pool(PoolKind kind) { Cuda::here().end_pool(kind); }

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
bool gpu_is_emulated() { return false; }
bool gpus_reach_each_other() { return false; }
bool gpu_knows(const void*) { refuse(); }
void use_gpu_of_thread(int) { refuse(); }
void fail_gpu_for_good() { refuse(); }
GpuStream::GpuStream(StreamManner) { refuse(); }
GpuStream::GpuStream(int) { refuse(); }
GpuStream::~GpuStream() = default;
Stream GpuStream::stream() const noexcept { return Stream::cuda(stream_); }
void GpuStream::run(std::function<void()>) { refuse(); }
void GpuStream::copy(void*, const void*, std::size_t) { refuse(); }
void GpuStream::synchronize() {}
GpuGraph::GpuGraph(GpuStream&, const std::function<void()>&) { refuse(); }
GpuGraph::~GpuGraph() = default;
void GpuGraph::launch(GpuStream&) { refuse(); }
GpuKernel::GpuKernel(const char*) { refuse(); }
void GpuKernel::launch(GpuStream&, void*, unsigned) const { refuse(); }
int gpus() { return 0; }
Refusals::Refusals(unsigned, unsigned, Refused) { refuse(); }
Refusals::~Refusals() = default;
bool Refusals::possible() { return false; }
GpuBuffer::GpuBuffer(std::size_t) { refuse(); }
GpuBuffer::GpuBuffer(std::size_t, int) { refuse(); }
GpuBuffer::~GpuBuffer() = default;
PooledBuffer::PooledBuffer(PoolKind, std::size_t) { refuse(); }
PooledBuffer::~PooledBuffer() = default;
void PooledBuffer::end_pool(PoolKind) { refuse(); }
PinnedBuffer::PinnedBuffer(std::size_t) { refuse(); }
PinnedBuffer::~PinnedBuffer() = default;
void gpu_copy(void*, const void*, std::size_t) { refuse(); }

}  // namespace sluice::test

#endif
