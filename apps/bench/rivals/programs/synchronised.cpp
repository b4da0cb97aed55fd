// SPDX-License-Identifier: Apache-2.0
// The method of programs without a library. They enqueue a copy into memory that both processes have mapped, wait for
// the stream, and raise a counter in memory that both hosts share. The other host polls the counter.
#include "apps/bench/harness/shared_pages.hpp"
#include "apps/bench/rivals/programs/cuda.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace {

using rivals::check;
using rivals::Cuda;

// After so many polls a wait yields its core, because the other rank may need the same one.
constexpr int kPollsBeforeYield = 10000;

using Counter = std::atomic<std::uint64_t>;

struct Counters {
  alignas(64) Counter messages;
  alignas(64) Counter released;
  alignas(64) Counter notices;
};

void await(const Counter& counter, std::uint64_t least) {
  for (int polls = 0; counter.load(std::memory_order_acquire) < least; ++polls) {
    if (polls >= kPollsBeforeYield) ::sched_yield();
  }
}

class Synchronised : public rivals::Verbs {
 public:
  Synchronised(const rivals::Workload& workload, const rivals::Rank& rank, CUstream stream)
      : bytes_(workload.bytes), slots_(static_cast<std::uint64_t>(workload.slots())),
        credits_(workload.needs_credits()), stream_(stream),
        memory_(rank, std::max<std::size_t>(2 * slots_ * bytes_, 1)),
        counters_(sizeof(Counters), [&](const auto& mine) { return rank.exchange(mine); }) {}

  Slots slots() const override {
    return {reinterpret_cast<void*>(memory_.mine() + slots_ * bytes_), reinterpret_cast<void*>(memory_.mine())};
  }

  void put(int first, int count) override {
    put_ += static_cast<std::uint64_t>(count);
    if (credits_ && put_ > slots_) await(mine().released, put_ - slots_);
    for (int slot = first; slot < first + count; ++slot) {
      const std::size_t at = static_cast<std::size_t>(slot) * bytes_;
      const CUdeviceptr source = memory_.mine() + slots_ * bytes_ + at;
      if (bytes_ > 0)
        check(cuda_.cuMemcpyDtoDAsync(memory_.theirs() + at, source, bytes_, stream_), "cuMemcpyDtoDAsync");
    }
    check(cuda_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    theirs().messages.store(put_, std::memory_order_release);
  }

  void wait(int /*first*/, int count) override {
    waited_ += static_cast<std::uint64_t>(count);
    await(mine().messages, waited_);
  }

  void release(int /*first*/, int /*count*/) override { theirs().released.store(waited_, std::memory_order_release); }

  void notify() override { theirs().notices.store(++notified_, std::memory_order_release); }
  void await_notice() override { await(mine().notices, ++noticed_); }

  bool driven_by_host() const override { return true; }

 private:
  Counters& mine() const { return *reinterpret_cast<Counters*>(counters_.mine()); }
  Counters& theirs() const { return *reinterpret_cast<Counters*>(counters_.theirs()); }

  const Cuda& cuda_ = Cuda::here();
  const std::size_t bytes_;
  const std::uint64_t slots_;
  const bool credits_;
  CUstream stream_;
  rivals::SharedGpuMemory memory_;  // the target, then the source
  bench::SharedPages counters_;     // each host reads its own counters, which the other one raises
  std::uint64_t put_ = 0;
  std::uint64_t waited_ = 0;
  std::uint64_t notified_ = 0;
  std::uint64_t noticed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return rivals::serve(argc, argv,
                       {.check = [](const rivals::Rank&) { static_cast<void>(Cuda::here()); },
                        .open =
                            [](const rivals::Workload& workload, const rivals::Rank& rank) {
                              return rivals::on_stream(workload, rank, [&](CUstream stream) {
                                return std::make_unique<Synchronised>(workload, rank, stream);
                              });
                            }});
}
