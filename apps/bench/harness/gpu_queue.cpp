// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/gpu_queue.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace bench {

/// Functions of CUDA's driver or of HIP's runtime. The two take the same arguments and differ in names only; handles
/// are pointers in both, and a result is 0 or the number of an error.
struct GpuCalls {
  int (*stream_create)(void** stream, unsigned flags);
  int (*stream_destroy)(void* stream);
  int (*event_create)(void** event, unsigned flags);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* stream);
  int (*event_elapsed)(float* milliseconds, void* from, void* to);
  int (*launch_host)(void* stream, void (*function)(void*), void* argument);
  int (*begin_capture)(void* stream, int mode);
  int (*end_capture)(void* stream, void** graph);
  int (*graph_instantiate)(void** executable, void* graph, unsigned long long flags);
  int (*graph_destroy)(void* graph);
  int (*graph_launch)(void* executable, void* stream);
  int (*executable_destroy)(void* executable);
  int (*module_load)(void** module, const void* image);
  int (*module_function)(void** function, void* module, const char* name);
  int (*launch_kernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** parameters,
                       void** extra);
  // The vendors make a device current in different ways: `use_device` is built on the others.
  int (*use_device)(const GpuCalls& calls, int device);
  int (*cuda_retain)(void** context, int device) = nullptr;
  int (*cuda_set_current)(void* context) = nullptr;
  int (*hip_set_device)(int device) = nullptr;
};

namespace {

// Flags with the same values in CUDA and HIP.
constexpr unsigned kNonBlocking = 1;    // a stream does not wait for the default stream
constexpr int kThreadLocalCapture = 1;  // while a stream is captured, other threads may make calls that wait

// A library that this process has loaded already.
class LoadedLibrary {
 public:
  // Sluice has loaded one of these versions. Another version could not use the handles that Sluice has made.
  LoadedLibrary(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (handle_ == nullptr) handle_ = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    }
    if (handle_ == nullptr) throw std::runtime_error("no driver of a GPU is loaded");
  }

  template <class Function>
  void get(Function& function, const std::string& name) const {
    // If the arguments of a CUDA function have changed, the current function has the suffix _v2, and the plain name is
    // the old one.
    void* found = ::dlsym(handle_, (name + "_v2").c_str());
    if (found == nullptr) found = ::dlsym(handle_, name.c_str());
    if (found == nullptr) throw std::runtime_error("the driver has no " + name);
    function = reinterpret_cast<Function>(found);
  }

 private:
  void* handle_ = nullptr;
};

GpuCalls cuda_calls() {
  GpuCalls calls{};
  const LoadedLibrary library({"libcuda.so.1"});
  library.get(calls.stream_create, "cuStreamCreate");
  library.get(calls.stream_destroy, "cuStreamDestroy");
  library.get(calls.event_create, "cuEventCreate");
  library.get(calls.event_destroy, "cuEventDestroy");
  library.get(calls.event_record, "cuEventRecord");
  library.get(calls.event_elapsed, "cuEventElapsedTime");
  library.get(calls.launch_host, "cuLaunchHostFunc");
  library.get(calls.begin_capture, "cuStreamBeginCapture");
  library.get(calls.end_capture, "cuStreamEndCapture");
  library.get(calls.graph_instantiate, "cuGraphInstantiateWithFlags");
  library.get(calls.graph_destroy, "cuGraphDestroy");
  library.get(calls.graph_launch, "cuGraphLaunch");
  library.get(calls.executable_destroy, "cuGraphExecDestroy");
  library.get(calls.module_load, "cuModuleLoadData");
  library.get(calls.module_function, "cuModuleGetFunction");
  library.get(calls.launch_kernel, "cuLaunchKernel");
  library.get(calls.cuda_retain, "cuDevicePrimaryCtxRetain");
  library.get(calls.cuda_set_current, "cuCtxSetCurrent");
  // The primary context belongs to the process: it is retained here, and never released.
  calls.use_device = [](const GpuCalls& cuda, int device) {
    void* context = nullptr;
    const int result = cuda.cuda_retain(&context, device);
    return result != 0 ? result : cuda.cuda_set_current(context);
  };
  return calls;
}

GpuCalls hip_calls() {
  GpuCalls calls{};
  const LoadedLibrary library({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"});
  library.get(calls.stream_create, "hipStreamCreateWithFlags");
  library.get(calls.stream_destroy, "hipStreamDestroy");
  library.get(calls.event_create, "hipEventCreateWithFlags");
  library.get(calls.event_destroy, "hipEventDestroy");
  library.get(calls.event_record, "hipEventRecord");
  library.get(calls.event_elapsed, "hipEventElapsedTime");
  library.get(calls.launch_host, "hipLaunchHostFunc");
  library.get(calls.begin_capture, "hipStreamBeginCapture");
  library.get(calls.end_capture, "hipStreamEndCapture");
  library.get(calls.graph_instantiate, "hipGraphInstantiateWithFlags");
  library.get(calls.graph_destroy, "hipGraphDestroy");
  library.get(calls.graph_launch, "hipGraphLaunch");
  library.get(calls.executable_destroy, "hipGraphExecDestroy");
  library.get(calls.module_load, "hipModuleLoadData");
  library.get(calls.module_function, "hipModuleGetFunction");
  library.get(calls.launch_kernel, "hipModuleLaunchKernel");
  library.get(calls.hip_set_device, "hipSetDevice");
  calls.use_device = [](const GpuCalls& hip, int device) { return hip.hip_set_device(device); };
  return calls;
}

const GpuCalls& calls_of(sluice::Stream::Kind kind) {
  if (kind == sluice::Stream::Kind::cuda) {
    static const GpuCalls cuda = cuda_calls();
    return cuda;
  }
  static const GpuCalls hip = hip_calls();
  return hip;
}

void check(int result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string(what) + ": error " + std::to_string(result) + " of the driver");
}

// Calls a function that GpuQueue::run has allocated, and frees it.
void call_and_free(void* function) {
  const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()>*>(function));
  (*work)();
}

}  // namespace

GpuQueue::GpuQueue(sluice::Stream::Kind kind, int device, long items_per_step, Synchronize synchronize, long items)
    : Queue(items, items_per_step, kMaxSteps, std::move(synchronize)), calls_(calls_of(kind)), kind_(kind) {
  check(calls_.use_device(calls_, device), "to use a GPU");
  check(calls_.stream_create(&stream_, kNonBlocking), "to make a stream");
  check(calls_.event_create(&began_, 0), "to make an event");
  check(calls_.event_create(&ended_, 0), "to make an event");
}

GpuQueue::~GpuQueue() {
  if (graph_ != nullptr) calls_.executable_destroy(graph_);
  calls_.event_destroy(ended_);
  calls_.event_destroy(began_);
  calls_.stream_destroy(stream_);
}

sluice::Stream GpuQueue::stream() {
  return kind_ == sluice::Stream::Kind::cuda ? sluice::Stream::cuda(static_cast<CUstream_st*>(stream_))
                                             : sluice::Stream::hip(static_cast<ihipStream_t*>(stream_));
}

void GpuQueue::run(std::function<void()> work) {
  auto function = std::make_unique<std::function<void()>>(std::move(work));
  check(calls_.launch_host(stream_, call_and_free, function.get()), "to call a function in the order of a stream");
  static_cast<void>(function.release());  // call_and_free frees it
}

void* GpuQueue::load_kernel(std::span<const std::byte> image, const char* name) const {
  void* module = nullptr;
  void* kernel = nullptr;
  check(calls_.module_load(&module, image.data()), "to load kernels");
  check(calls_.module_function(&kernel, module, name), "to find a kernel");
  return kernel;
}

void GpuQueue::launch_block(void* kernel, void* args, unsigned threads) {
  check(calls_.launch_kernel(kernel, 1, 1, 1, threads, 1, 1, 0, stream_, &args, nullptr), "to launch a kernel");
}

void GpuQueue::capture(const std::function<void()>& work) {
  void* graph = nullptr;
  check(calls_.begin_capture(stream_, kThreadLocalCapture), "to capture a stream");
  try {
    work();
  } catch (...) {
    calls_.end_capture(stream_, &graph);
    throw;
  }
  check(calls_.end_capture(stream_, &graph), "to end a capture");
  const int result = calls_.graph_instantiate(&graph_, graph, 0);
  calls_.graph_destroy(graph);
  check(result, "to make a graph ready");
}

void GpuQueue::launch_graph() { check(calls_.graph_launch(graph_, stream_), "to launch a graph"); }

void GpuQueue::begin() { check(calls_.event_record(began_, stream_), "to record an event"); }
void GpuQueue::end() { check(calls_.event_record(ended_, stream_), "to record an event"); }

double GpuQueue::between_ns() {
  float milliseconds = 0;
  check(calls_.event_elapsed(&milliseconds, began_, ended_), "to read the time between events");
  return static_cast<double>(milliseconds) * 1e6;
}

}  // namespace bench
