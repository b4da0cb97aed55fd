// SPDX-License-Identifier: Apache-2.0
// The floor on GPUs: operations of the driver, and nothing else. A stream copies into memory that both processes have
// mapped, and writes and awaits a signal word for each slot; the words of several slots are one operation of the
// driver. A kernel can do all of that instead. The words lie in the GPU's memory; in the mode "host" they lie in memory
// of the hosts, as Sluice's do.
#include "apps/bench/harness/shared_pages.hpp"
#include "apps/bench/rivals/programs/cuda.hpp"
#include "apps/bench/rivals/programs/raw_ping_pong.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::device {
std::span<const std::byte> cuda_raw_ping_pong() noexcept;  // raw_ping_pong.cu
}

namespace {

using rivals::check;
using rivals::Cuda;

constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kAlignment = 4096;

std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// The words of this rank and of the other one, at addresses for a stream.
class Words {
 public:
  Words(const rivals::Rank& rank, const rivals::SharedGpuMemory& gpus, std::size_t bytes)
      : mine_(gpus.mine()), theirs_(gpus.theirs()) {
    if (rank.mode != "host") return;
    hosts_.emplace(round_up(bytes), [&](const auto& mine) { return rank.exchange(mine); });
    mine_ = register_pages(hosts_->mine(), bytes);
    theirs_ = register_pages(hosts_->theirs(), bytes);
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  ~Words() {
    if (!hosts_) return;
    for (void* const pages : {hosts_->mine(), hosts_->theirs()}) Cuda::here().cuMemHostUnregister(pages);
  }

  CUdeviceptr mine() const { return mine_; }
  CUdeviceptr theirs() const { return theirs_; }

 private:
  // Registers memory of the host with the driver, and returns its address for a stream.
  static CUdeviceptr register_pages(void* pages, std::size_t bytes) {
    const Cuda& cuda = Cuda::here();
    CUdeviceptr at = 0;
    constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    check(cuda.cuMemHostRegister(pages, round_up(bytes), kFlags), "cuMemHostRegister");
    check(cuda.cuMemHostGetDevicePointer(&at, pages, 0), "cuMemHostGetDevicePointer");
    return at;
  }

  CUdeviceptr mine_;
  CUdeviceptr theirs_;
  std::optional<bench::SharedPages> hosts_;
};

class Raw : public rivals::Verbs {
 public:
  Raw(const rivals::Workload& workload, const rivals::Rank& rank, CUstream stream)
      : bytes_(workload.bytes), slots_(static_cast<std::size_t>(workload.slots())), credits_(workload.needs_credits()),
        replayed_(bench::replays(workload.drive)), stream_(stream), target_(round_up((2 * slots_ + 1) * kWord)),
        source_(target_ + round_up(slots_ * bytes_)), memory_(rank, source_ + round_up(slots_ * bytes_)),
        words_(rank, memory_, target_), put_(slots_), waited_(slots_) {
    gathered_.reserve(slots_);
  }

  Slots slots() const override {
    return {reinterpret_cast<void*>(memory_.mine() + source_), reinterpret_cast<void*>(memory_.mine() + target_)};
  }

  void put(int first, int count) override {
    if (credits_) {
      for (int slot = first; slot < first + count; ++slot) wait_for(credit(words_.mine(), slot), put_.at(slot));
      issue();
    }
    for (int slot = first; slot < first + count; ++slot) copy(slot * bytes_);
    for (int slot = first; slot < first + count; ++slot) write(signal(words_.theirs(), slot), next(put_.at(slot)));
    issue();
  }

  void wait(int first, int count) override {
    for (int slot = first; slot < first + count; ++slot) wait_for(signal(words_.mine(), slot), next(waited_.at(slot)));
    if (replayed_) {
      for (int slot = first; slot < first + count; ++slot) write(signal(words_.mine(), slot), 0);
    }
    issue();
  }

  void release(int first, int count) override {
    for (int slot = first; slot < first + count; ++slot) write(credit(words_.theirs(), slot), waited_.at(slot));
    issue();
  }

  void notify() override {
    write(notice(words_.theirs()), ++notified_);
    issue();
  }
  void await_notice() override {
    wait_for(notice(words_.mine()), ++noticed_);
    issue();
  }

 private:
  CUdeviceptr signal(CUdeviceptr memory, int slot) const { return memory + slot * kWord; }
  CUdeviceptr credit(CUdeviceptr memory, int slot) const { return signal(memory, slot) + slots_ * kWord; }
  CUdeviceptr notice(CUdeviceptr memory) const { return memory + 2 * slots_ * kWord; }

  // The value of a slot's next signal. A graph writes and awaits the same value, 1, in each replay; the waiting rank
  // sets the word back to 0, before one of its own messages allows the other rank to reuse the slot.
  std::uint64_t next(std::uint64_t& count) const { return replayed_ ? 1 : ++count; }

  void copy(std::size_t at) {
    if (bytes_ == 0) return;
    check(cuda_.cuMemcpyDtoDAsync(memory_.theirs() + target_ + at, memory_.mine() + source_ + at, bytes_, stream_),
          "cuMemcpyDtoDAsync");
  }

  void write(CUdeviceptr word, std::uint64_t value) {
    CUstreamBatchMemOpParams operation{};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    operation.writeValue.address = word;
    operation.writeValue.value64 = value;
    gathered_.push_back(operation);
  }

  void wait_for(CUdeviceptr word, std::uint64_t value) {
    CUstreamBatchMemOpParams operation{};
    operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    operation.waitValue.address = word;
    operation.waitValue.value64 = value;
    operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    gathered_.push_back(operation);
  }

  // Enqueues the gathered operations by the cheapest call of the driver.
  void issue() {
    const CUstreamBatchMemOpParams& first = gathered_.front();
    if (gathered_.size() > 1) {
      check(cuda_.cuStreamBatchMemOp(stream_, static_cast<unsigned>(gathered_.size()), gathered_.data(), 0),
            "cuStreamBatchMemOp");
    } else if (first.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64) {
      check(cuda_.cuStreamWriteValue64(stream_, first.writeValue.address, first.writeValue.value64, 0),
            "cuStreamWriteValue64");
    } else {
      check(cuda_.cuStreamWaitValue64(stream_, first.waitValue.address, first.waitValue.value64, first.waitValue.flags),
            "cuStreamWaitValue64");
    }
    gathered_.clear();
  }

  const Cuda& cuda_ = Cuda::here();
  const std::size_t bytes_;
  const std::size_t slots_;
  const bool credits_;
  const bool replayed_;
  CUstream stream_;
  const std::size_t target_;  // offset: a signal and a credit for each slot and a notice are before it
  const std::size_t source_;  // offset
  rivals::SharedGpuMemory memory_;
  Words words_;
  std::vector<std::uint64_t> put_;     // messages that this rank has put into each slot
  std::vector<std::uint64_t> waited_;  // messages that it has waited for in each slot
  std::uint64_t notified_ = 0;
  std::uint64_t noticed_ = 0;
  std::vector<CUstreamBatchMemOpParams> gathered_;  // operations that are issued together
};

class RawKernel : public rivals::Kernel {
 public:
  RawKernel(const rivals::Workload& workload, const rivals::Rank& rank, bench::GpuQueue& queue)
      : queue_(queue), kernel_(queue.load_kernel(sluice::device::cuda_raw_ping_pong(), Args::kKernel)),
        source_(kTarget + round_up(static_cast<std::size_t>(workload.slots()) * workload.bytes)),
        memory_(rank, 2 * source_),
        words_(rank, memory_, kTarget), args_{.source = at<std::byte>(memory_.mine(), source_),
                                              .target = at<std::byte>(memory_.theirs(), kTarget),
                                              .slots = static_cast<std::uint64_t>(workload.slots()),
                                              .bytes = workload.bytes,
                                              .their_signal = at<std::uint64_t>(words_.theirs(), 0),
                                              .my_signal = at<std::uint64_t>(words_.mine(), 0),
                                              .before = 0,
                                              .rounds = 0,
                                              .first = rank.rank == 0 ? 1U : 0U} {}

  rivals::Verbs::Slots slots() const override {
    return {at<void>(memory_.mine(), source_), at<void>(memory_.mine(), kTarget)};
  }

  void launch(long rounds) override {
    args_.rounds = static_cast<std::uint64_t>(rounds);
    queue_.launch_kernel(kernel_, args_, bench::threads_to_copy(args_.bytes));
    args_.before += args_.rounds;
  }

 private:
  using Args = rivals::RawPingPongArgs;
  static constexpr std::size_t kTarget = kAlignment;  // offset of the target, after a page with the word

  template <class T>
  static T* at(CUdeviceptr memory, std::size_t offset) {
    return reinterpret_cast<T*>(memory + offset);
  }

  bench::GpuQueue& queue_;
  void* const kernel_;
  const std::size_t source_;  // offset, after the target
  rivals::SharedGpuMemory memory_;
  Words words_;
  Args args_;
};

std::unique_ptr<rivals::Runner> open(const rivals::Workload& workload, const rivals::Rank& rank) {
  if (workload.unit == "kernel") {
    return rivals::in_kernel(
        workload, rank, [&](bench::GpuQueue& queue) { return std::make_unique<RawKernel>(workload, rank, queue); });
  }
  return rivals::on_stream(workload, rank,
                           [&](CUstream stream) { return std::make_unique<Raw>(workload, rank, stream); });
}

}  // namespace

int main(int argc, char** argv) {
  return rivals::serve(argc, argv,
                       {.check = [](const rivals::Rank&) { static_cast<void>(Cuda::here()); }, .open = open});
}
