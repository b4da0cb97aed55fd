// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/programs/cuda.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rivals {

const Cuda& Cuda::here() {
  static const Cuda cuda;
  return cuda;
}

Cuda::Cuda() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error("there is no libcuda.so.1");
// NOLINTBEGIN(bugprone-macro-parentheses): names. SLUICE_QUOTED is expanded before it quotes: cuda.h defines a plain
// name as a macro for the version that the program was compiled for (cuMemAlloc is cuMemAlloc_v2).
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
  constexpr auto kMpsEnabled =
      static_cast<CUdevice_attribute>(133);  // the first headers of CUDA 12 have no name for it
  int devices = 0;
  int mps = 0;
  check(cuDeviceGetCount(&devices), "cuDeviceGetCount");
  return devices == 1 && (cuDeviceGetAttribute(&mps, kMpsEnabled, 0) != CUDA_SUCCESS || mps == 0);
}

void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(what) + ": error " + std::to_string(static_cast<int>(result)) + " of CUDA");
}

SharedGpuMemory::SharedGpuMemory(const Rank& rank, std::size_t bytes) : rank_(rank) {
  const Cuda& cuda = Cuda::here();
  cuda.use(rank.device);
  check(cuda.cuMemAlloc(&mine_, bytes), "cuMemAlloc");
  check(cuda.cuMemsetD8(mine_, 0, bytes), "cuMemsetD8");
  check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
  CUipcMemHandle handle;
  check(cuda.cuIpcGetMemHandle(&handle, mine_), "cuIpcGetMemHandle");
  handle = rank.exchange(handle);
  check(cuda.cuIpcOpenMemHandle(&theirs_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
  rank.meet();  // now each rank can write to the other
}

SharedGpuMemory::~SharedGpuMemory() {
  if (std::uncaught_exceptions() > 0) return;  // this process is about to end and print the reason
  const Cuda& cuda = Cuda::here();
  cuda.cuIpcCloseMemHandle(theirs_);
  try {
    rank_.meet();
    cuda.cuMemFree(mine_);
  } catch (const std::runtime_error&) {
    return;  // the other rank has ended, perhaps with the memory mapped: the end of this process frees it
  }
}

namespace {

// The byte that a rank puts in a turn.
int stamp(int rank, int turn) { return 0x51 + 2 * turn + rank; }

// Fills the source with this rank's stamp, and the target with zeros. When it returns, both ranks have done so.
void stamp_slots(const Workload& workload, const Rank& rank, const Verbs::Slots& slots, int turn) {
  const Cuda& cuda = Cuda::here();
  const std::size_t bytes = static_cast<std::size_t>(workload.slots()) * workload.bytes;
  if (bytes > 0) {
    const auto mine = static_cast<unsigned char>(stamp(rank.rank, turn));
    check(cuda.cuMemsetD8(reinterpret_cast<CUdeviceptr>(slots.source), mine, bytes), "cuMemsetD8");
    check(cuda.cuMemsetD8(reinterpret_cast<CUdeviceptr>(slots.target), 0, bytes), "cuMemsetD8");
    check(cuda.cuCtxSynchronize(), "cuCtxSynchronize");
  }
  rank.meet();
}

// Throws unless every byte that has arrived is the other rank's stamp.
void check_slots(const Workload& workload, const Rank& rank, const Verbs::Slots& slots, int turn) {
  const bool receives = workload.unit != "flood" || rank.rank != 0;
  std::vector<char> found(receives ? static_cast<std::size_t>(workload.filled()) * workload.bytes : 0);
  if (found.empty()) return;
  check(Cuda::here().cuMemcpyDtoH(found.data(), reinterpret_cast<CUdeviceptr>(slots.target), found.size()),
        "cuMemcpyDtoH");
  const auto theirs = static_cast<char>(stamp(1 - rank.rank, turn));
  if (!std::ranges::all_of(found, [&](char byte) { return byte == theirs; }))
    throw std::runtime_error("what arrives is not what was put");
}

// Runs the workload once before it is measured, because a first run takes longer, and throws if wrong bytes arrive: the
// rival is then left out. Rank 0 is late on purpose, so that a wait which does not wait is found. A graph runs twice:
// its second replay finds the signal words as the first one has left them.
void check_bytes(const Workload& workload, const Rank& rank, const Verbs::Slots& slots, Runner& runner) {
  constexpr std::chrono::milliseconds kLate{10};
  const int turns = bench::replays(workload.drive) ? 2 : 1;
  for (int turn = 0; turn < turns; ++turn) {
    stamp_slots(workload, rank, slots, turn);
    if (rank.rank == 0) std::this_thread::sleep_for(kLate);
    runner.run(1);
    check_slots(workload, rank, slots, turn);
  }
}

std::unique_ptr<bench::GpuQueue> make_queue(const Workload& workload, const Rank& rank) {
  const long items_of_step = workload.unit == "flood"  ? 3L * workload.window + 2
                             : workload.unit == "halo" ? 4L * workload.neighbours
                                                       : 4;
  const long items = bench::replays(workload.drive) ? items_of_step * workload.period() : items_of_step;
  return std::make_unique<bench::GpuQueue>(sluice::Stream::Kind::cuda, rank.device, items, [](sluice::Stream stream) {
    check(Cuda::here().cuStreamSynchronize(static_cast<CUstream>(stream.handle())), "cuStreamSynchronize");
  });
}

class InKernel : public Runner {
 public:
  InKernel(std::unique_ptr<bench::GpuQueue> queue, std::unique_ptr<Kernel> kernel)
      : queue_(std::move(queue)), kernel_(std::move(kernel)) {
    kernel_->launch(0);  // while no gate is closed, because the first launch may wait until the stream is idle
    queue_->synchronize();
  }

  double run(long count) override {
    return queue_->time_ahead([&] { kernel_->launch(bench::Queue::kLeadIn); }, [&] { kernel_->launch(count); });
  }

 private:
  const std::unique_ptr<bench::GpuQueue> queue_;
  const std::unique_ptr<Kernel> kernel_;
};

}  // namespace

std::unique_ptr<Runner> on_stream(const Workload& workload, const Rank& rank,
                                  const std::function<std::unique_ptr<Verbs>(CUstream)>& open) {
  auto queue = make_queue(workload, rank);
  auto verbs = open(static_cast<CUstream>(queue->stream().handle()));
  const Verbs::Slots slots = verbs->slots();
  auto runner = run_on(workload, rank, std::move(queue), std::move(verbs));
  check_bytes(workload, rank, slots, *runner);
  return runner;
}

std::unique_ptr<Runner> in_kernel(const Workload& workload, const Rank& rank,
                                  const std::function<std::unique_ptr<Kernel>(bench::GpuQueue&)>& open) {
  if (Cuda::here().ranks_take_turns()) throw std::runtime_error("its kernels need MPS where two ranks share a GPU");
  auto queue = make_queue(workload, rank);
  auto kernel = open(*queue);
  const Verbs::Slots slots = kernel->slots();
  auto runner = std::make_unique<InKernel>(std::move(queue), std::move(kernel));
  check_bytes(workload, rank, slots, *runner);
  return runner;
}

}  // namespace rivals
