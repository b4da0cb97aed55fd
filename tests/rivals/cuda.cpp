// SPDX-License-Identifier: Apache-2.0
#include "tests/rivals/cuda.hpp"

#include "apps/bench/gpu_queue.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace rivals {

const Cuda& Cuda::here() {
  static const Cuda cuda;
  return cuda;
}

Cuda::Cuda() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error("there is no libcuda.so.1");
// NOLINTBEGIN(bugprone-macro-parentheses): names. The first macro gives the name of the version that the header chose.
#define SLUICE_QUOTED(call) #call
#define SLUICE_GET(call)                                                           \
  call = reinterpret_cast<decltype(&::call)>(dlsym(library, SLUICE_QUOTED(call))); \
  if (call == nullptr) throw std::runtime_error("the driver has no " SLUICE_QUOTED(call));
  SLUICE_RIVAL_CALLS(SLUICE_GET)
#undef SLUICE_GET
#undef SLUICE_QUOTED
  // NOLINTEND(bugprone-macro-parentheses)
  int devices = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices == 0)
    throw std::runtime_error("there is no GPU");
}

void Cuda::use(int device) const {
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

bool Cuda::ranks_take_turns() const {
  constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);  // which the first headers of CUDA 12 do not name
  int devices = 0;
  int mps = 0;
  check(cuDeviceGetCount(&devices), "cuDeviceGetCount");
  return devices == 1 && (cuDeviceGetAttribute(&mps, kMpsEnabled, 0) != CUDA_SUCCESS || mps == 0);
}

void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(what) + ": error " + std::to_string(static_cast<int>(result)) + " of CUDA");
}

SharedMemory::SharedMemory(const Rank& rank, std::size_t bytes) : rank_(rank) {
  const Cuda& cuda = Cuda::here();
  cuda.use(rank.device);
  check(cuda.cuMemAlloc(&mine_, bytes), "cuMemAlloc");
  check(cuda.cuMemsetD8(mine_, 0, bytes), "cuMemsetD8");
  check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
  CUipcMemHandle handle;
  check(cuda.cuIpcGetMemHandle(&handle, mine_), "cuIpcGetMemHandle");
  handle = rank.exchange(handle);
  check(cuda.cuIpcOpenMemHandle(&theirs_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
  rank.meet();  // a case begins when both can reach each other
}

SharedMemory::~SharedMemory() {
  const Cuda& cuda = Cuda::here();
  cuda.cuIpcCloseMemHandle(theirs_);
  try {
    rank_.meet();
    cuda.cuMemFree(mine_);
  } catch (const std::runtime_error&) {
    // The run ends, and the other rank may have it open: it goes with this process.
  }
}

std::unique_ptr<Runner> on_stream(const Case& one_case, const Rank& rank,
                                  const std::function<std::unique_ptr<Verbs>(CUstream)>& open) {
  const long items = one_case.unit == "flood"  ? 3L * one_case.window + 2
                     : one_case.unit == "halo" ? 4L * one_case.neighbours
                                               : 4;
  auto queue =
      std::make_unique<bench::GpuQueue>(sluice::Stream::Kind::cuda, rank.device, items, [](sluice::Stream stream) {
        check(Cuda::here().cuStreamSynchronize(static_cast<CUstream>(stream.handle())), "cuStreamSynchronize");
      });
  auto verbs = open(static_cast<CUstream>(queue->stream().handle()));
  return run_on(one_case, rank, std::move(queue), std::move(verbs));
}

}  // namespace rivals
