// SPDX-License-Identifier: Apache-2.0
// What programs do without a library for it: a copy into the memory that both processes have mapped, the host waits for
// its stream, and tells the other host by a counter in memory that both hosts share.
#include "tests/rivals/cuda.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace {

using rivals::check;
using rivals::Cuda;

// Where both ranks share a core, the other one must come to run.
constexpr int kSpinsBeforeYield = 10000;

using Counter = std::atomic<std::uint64_t>;

struct Counters {
  alignas(64) Counter messages;
  alignas(64) Counter released;
  alignas(64) Counter notices;
};

void await(const Counter& counter, std::uint64_t least) {
  for (int spins = 0; counter.load(std::memory_order_acquire) < least; ++spins) {
    if (spins >= kSpinsBeforeYield) ::sched_yield();
  }
}

/// Counters of this rank, and those of the other one, which the other one's host reads.
class SharedCounters {
 public:
  explicit SharedCounters(const rivals::Rank& rank) {
    const int file = ::memfd_create("rival-synchronised", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, sizeof(Counters)) != 0) throw std::runtime_error("there is no memory to share");
    struct Where {
      pid_t process;
      int file;
    };
    const Where theirs = rank.exchange(Where{::getpid(), file});
    const std::string path = "/proc/" + std::to_string(theirs.process) + "/fd/" + std::to_string(theirs.file);
    const int their_file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    mine_ = map(file);
    theirs_ = map(their_file);
    rank.meet();  // both have opened the other's
    ::close(their_file);
    ::close(file);
  }
  ~SharedCounters() {
    ::munmap(mine_, sizeof(Counters));
    ::munmap(theirs_, sizeof(Counters));
  }
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;

  Counters& mine() const { return *mine_; }
  Counters& theirs() const { return *theirs_; }

 private:
  static Counters* map(int file) {
    void* const memory = ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("memory of the other process cannot be mapped");
    return static_cast<Counters*>(memory);
  }

  Counters* mine_ = nullptr;
  Counters* theirs_ = nullptr;
};

class Synchronised : public rivals::Verbs {
 public:
  Synchronised(const rivals::Case& one_case, const rivals::Rank& rank, CUstream stream)
      : bytes_(one_case.bytes), slots_(static_cast<std::uint64_t>(one_case.slots())),
        credits_(one_case.needs_credits()), stream_(stream),
        memory_(rank, std::max<std::size_t>(2 * slots_ * bytes_, 1)), counters_(rank) {}

  Slots slots() const override {
    return {reinterpret_cast<void*>(memory_.mine() + slots_ * bytes_), reinterpret_cast<void*>(memory_.mine())};
  }

  void put(int first, int count) override {
    put_ += static_cast<std::uint64_t>(count);
    if (credits_ && put_ > slots_) await(counters_.mine().released, put_ - slots_);
    for (int slot = first; slot < first + count; ++slot) {
      const std::size_t at = static_cast<std::size_t>(slot) * bytes_;
      const CUdeviceptr source = memory_.mine() + slots_ * bytes_ + at;
      if (bytes_ > 0)
        check(cuda_.cuMemcpyDtoDAsync(memory_.theirs() + at, source, bytes_, stream_), "cuMemcpyDtoDAsync");
    }
    check(cuda_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    counters_.theirs().messages.store(put_, std::memory_order_release);
  }

  void wait(int /*first*/, int count) override {
    waited_ += static_cast<std::uint64_t>(count);
    await(counters_.mine().messages, waited_);
  }

  void release(int /*first*/, int /*count*/) override {
    counters_.theirs().released.store(waited_, std::memory_order_release);
  }

  void notify() override { counters_.theirs().notices.store(++notified_, std::memory_order_release); }
  void await_notice() override { await(counters_.mine().notices, ++noticed_); }

  bool driven_by_host() const override { return true; }

 private:
  const Cuda& cuda_ = Cuda::here();
  const std::size_t bytes_;
  const std::uint64_t slots_;
  const bool credits_;
  CUstream stream_;
  rivals::SharedMemory memory_;  // the target, then the source
  SharedCounters counters_;
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
                            [](const rivals::Case& one_case, const rivals::Rank& rank) {
                              return rivals::on_stream(one_case, rank, [&](CUstream stream) {
                                return std::make_unique<Synchronised>(one_case, rank, stream);
                              });
                            }});
}
