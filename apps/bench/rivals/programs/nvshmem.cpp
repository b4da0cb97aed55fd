// SPDX-License-Identifier: Apache-2.0
// NVSHMEM: its operations on streams (a put with its signal, and a wait), or a kernel that calls NVSHMEM.
#include "apps/bench/rivals/programs/cuda.hpp"
#include "apps/bench/rivals/programs/nvshmem_ping_pong.hpp"

#include <nvshmem_host.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <vector>

namespace sluice::device {
std::span<const std::byte> cuda_nvshmem_ping_pong() noexcept;  // nvshmem_ping_pong.cu
}

namespace {

using rivals::check;
using rivals::Cuda;

// Starts NVSHMEM, once in a process.
void start(const rivals::Rank& rank) {
  static bool started = false;
  if (started) return;
  Cuda::here().use(rank.device);
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  if (rank.rank == 0 && nvshmemx_get_uniqueid(&id) != 0) throw std::runtime_error("nvshmemx_get_uniqueid failed");
  const nvshmemx_uniqueid_t theirs = rank.exchange(id);
  if (rank.rank != 0) id = theirs;
  nvshmemx_init_attr_t how = NVSHMEMX_INIT_ATTR_INITIALIZER;
  if (nvshmemx_set_attr_uniqueid_args(rank.rank, 2, &id, &how) != 0 ||
      nvshmemx_hostlib_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &how) != 0)
    throw std::runtime_error("nvshmemx_hostlib_init_attr failed");
  started = true;
}

/// Memory of the symmetric heap: some words, and the slots of the workload, those of the target before those of the
/// source.
class Memory {
 public:
  Memory(const rivals::Workload& workload, const rivals::Rank& rank, std::size_t words)
      : bytes_(static_cast<std::size_t>(workload.slots()) * workload.bytes) {
    start(rank);
    words_ = static_cast<std::uint64_t*>(nvshmem_calloc(words, sizeof(std::uint64_t)));
    data_ = static_cast<char*>(nvshmem_calloc(std::max<std::size_t>(2 * bytes_, 1), 1));
    if (words_ == nullptr || data_ == nullptr) throw std::runtime_error("nvshmem_calloc failed");
  }
  ~Memory() {
    if (std::uncaught_exceptions() > 0) return;  // nvshmem_free is collective, and this process is about to end
    nvshmem_free(data_);
    nvshmem_free(words_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::uint64_t* words() const { return words_; }
  char* target() const { return data_; }
  char* source() const { return data_ + bytes_; }

 private:
  const std::size_t bytes_;
  std::uint64_t* words_ = nullptr;
  char* data_ = nullptr;
};

class PutSignal : public rivals::Verbs {
 public:
  PutSignal(const rivals::Workload& workload, const rivals::Rank& rank, CUstream stream)
      : bytes_(workload.bytes), slots_(static_cast<std::size_t>(workload.slots())), credits_(workload.needs_credits()),
        replayed_(bench::replays(workload.drive)), waits_by_driver_(Cuda::here().ranks_take_turns()),
        peer_(1 - rank.rank), stream_(stream), memory_(workload, rank, 2 * slots_ + 1), put_(slots_), waited_(slots_) {}

  Slots slots() const override { return {memory_.source(), memory_.target()}; }

  void put(int first, int count) override {
    for (std::size_t slot : range(first, count)) {
      if (credits_) wait_for(credit(slot), put_[slot]);
      const std::size_t at = slot * bytes_;
      const std::uint64_t value = next(put_[slot]);
      if (bytes_ > 0) {
        nvshmemx_putmem_signal_on_stream(memory_.target() + at, memory_.source() + at, bytes_, signal(slot), value,
                                         NVSHMEM_SIGNAL_SET, peer_, stream_);
      } else {
        set(signal(slot), value);
      }
    }
  }
  void wait(int first, int count) override {
    for (std::size_t slot : range(first, count)) wait_for(signal(slot), next(waited_[slot]));
    if (!replayed_) return;
    for (std::size_t slot : range(first, count))
      check(Cuda::here().cuStreamWriteValue64(stream_, reinterpret_cast<CUdeviceptr>(signal(slot)), 0, 0),
            "cuStreamWriteValue64");
  }
  void release(int first, int count) override {
    for (std::size_t slot : range(first, count)) set(credit(slot), waited_[slot]);
  }
  void notify() override { set(notice(), ++notified_); }
  void await_notice() override { wait_for(notice(), ++noticed_); }

 private:
  static std::vector<std::size_t> range(int first, int count) {
    std::vector<std::size_t> slots;
    for (int slot = first; slot < first + count; ++slot) slots.push_back(static_cast<std::size_t>(slot));
    return slots;
  }
  // The words: a signal and a credit for each slot, and a notice.
  std::uint64_t* signal(std::size_t slot) const { return memory_.words() + slot; }
  std::uint64_t* credit(std::size_t slot) const { return signal(slots_) + slot; }
  std::uint64_t* notice() const { return credit(slots_); }

  // The value of a slot's next signal. A graph cannot count: as in raw.cpp, the waiting rank sets the signal back to 0.
  std::uint64_t next(std::uint64_t& count) const { return replayed_ ? 1 : ++count; }

  void set(std::uint64_t* word, std::uint64_t value) {
    nvshmemx_signal_op_on_stream(word, value, NVSHMEM_SIGNAL_SET, peer_, stream_);
  }
  // NVSHMEM aborts a program that waits on a stream if two PEs share a GPU without MPS; then the driver waits.
  void wait_for(std::uint64_t* word, std::uint64_t value) {
    if (!waits_by_driver_) return nvshmemx_signal_wait_until_on_stream(word, NVSHMEM_CMP_GE, value, stream_);
    check(
        Cuda::here().cuStreamWaitValue64(stream_, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue64");
  }

  const std::size_t bytes_;
  const std::size_t slots_;
  const bool credits_;
  const bool replayed_;
  const bool waits_by_driver_;
  const int peer_;
  CUstream stream_;
  Memory memory_;
  std::vector<std::uint64_t> put_;     // messages that this rank has put into each slot
  std::vector<std::uint64_t> waited_;  // messages that it has waited for in each slot
  std::uint64_t notified_ = 0;
  std::uint64_t noticed_ = 0;
};

class PutSignalKernel : public rivals::Kernel {
 public:
  PutSignalKernel(const rivals::Workload& workload, const rivals::Rank& rank, bench::GpuQueue& queue)
      : queue_(queue), memory_(workload, rank, 1),
        kernel_(load()), args_{.target = memory_.target(),
                               .source = memory_.source(),
                               .slots = static_cast<std::size_t>(workload.slots()),
                               .bytes = workload.bytes,
                               .signal = memory_.words(),
                               .peer = 1 - rank.rank,
                               .before = 0,
                               .rounds = 0,
                               .first = rank.rank == 0} {}

  rivals::Verbs::Slots slots() const override { return {memory_.source(), memory_.target()}; }

  void launch(long rounds) override {
    args_.rounds = static_cast<std::uint64_t>(rounds);
    queue_.launch_kernel(kernel_, args_, bench::threads_to_copy(args_.bytes));
    args_.before += args_.rounds;
  }

 private:
  // Not by GpuQueue::load_kernel: NVSHMEM must write the address of its heap into the module.
  static void* load() {
    const Cuda& cuda = Cuda::here();
    CUmodule module = nullptr;
    CUfunction kernel = nullptr;
    check(cuda.cuModuleLoadData(&module, sluice::device::cuda_nvshmem_ping_pong().data()), "cuModuleLoadData");
    if (nvshmemx_cumodule_init(module) != 0) throw std::runtime_error("nvshmemx_cumodule_init failed");
    check(cuda.cuModuleGetFunction(&kernel, module, rivals::NvshmemPingPongArgs::kKernel), "cuModuleGetFunction");
    return kernel;
  }

  bench::GpuQueue& queue_;
  Memory memory_;
  void* const kernel_;
  rivals::NvshmemPingPongArgs args_;
};

std::unique_ptr<rivals::Runner> open(const rivals::Workload& workload, const rivals::Rank& rank) {
  if (workload.unit == "kernel") {
    return rivals::in_kernel(workload, rank, [&](bench::GpuQueue& queue) {
      return std::make_unique<PutSignalKernel>(workload, rank, queue);
    });
  }
  return rivals::on_stream(workload, rank,
                           [&](CUstream stream) { return std::make_unique<PutSignal>(workload, rank, stream); });
}

void check_here(const rivals::Rank& /*rank*/) {
  static_cast<void>(Cuda::here());
  // Both ranks are on this machine, so no network is needed. NVSHMEM would load NCCL too if it is installed.
  ::setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
  ::setenv("NVSHMEM_DISABLE_NCCL", "1", 0);
}

}  // namespace

int main(int argc, char** argv) { return rivals::serve(argc, argv, {.check = check_here, .open = open}); }
