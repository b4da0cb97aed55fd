// SPDX-License-Identifier: Apache-2.0
// An alltoall of uneven blocks by puts to windows of MPI, as in MPI Advance: between fences, or with a flush and a
// barrier. (Namugwanya, Bienz, Dosanjh, Skjellum: "Optimized RMA-based MPI_Alltoallv Operations".)
#include "apps/bench/harness/collective.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <mpi.h>

#include <algorithm>
#include <vector>

namespace bench {
namespace {

class WindowAlltoallv : public Contender {
 public:
  WindowAlltoallv(const Workload& workload, bool by_fences)
      : workload_(workload), by_fences_(by_fences), size_(workload.context.size()),
        from_(1 + bytes_of(workload).given) {
    const sluice::Rank own = workload.context.rank();
    apps::check_counts(world_.communicator(), uneven_sent(own, size_, workload.bytes), "an alltoallv", "bytes");
    for (sluice::Rank to = 0; to < size_; ++to) {
      counts_.push_back(static_cast<int>(uneven_bytes(own, to, workload.bytes)));
      sources_.push_back(uneven_sent(own, to, workload.bytes));
      targets_.push_back(static_cast<MPI_Aint>(uneven_received(to, own, workload.bytes)));
    }
    const auto bytes = static_cast<MPI_Aint>(bytes_of(workload).got);
    MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, world_.communicator(), &got_, &window_);
    if (!by_fences_) MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
  }
  ~WindowAlltoallv() override {
    if (!by_fences_) MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }

  double run(long count) override {
    return timed_steps(count, [this] {
      compute(workload_, from_.data(), turn_);
      by_fences_ ? between_fences() : flushed();
      read(workload_, got_, turn_++);
    });
  }

 private:
  void put_all() {
    for (std::size_t to = 0; to < counts_.size(); ++to)
      if (counts_[to] > 0)
        MPI_Put(from_.data() + sources_[to], counts_[to], MPI_BYTE, static_cast<int>(to), targets_[to], counts_[to],
                MPI_BYTE, window_);
  }

  void between_fences() {
    MPI_Win_fence(MPI_MODE_NOPRECEDE, window_);
    put_all();
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window_);
  }

  /// A put of the next round may replace what a slow rank still reads: that would need another barrier.
  void flushed() {
    put_all();
    MPI_Win_flush_all(window_);
    MPI_Barrier(world_.communicator());
  }

  const Workload workload_;
  const bool by_fences_;
  const int size_;
  apps::MpiWorld world_;
  Pages from_;
  std::vector<int> counts_;
  std::vector<std::size_t> sources_;
  std::vector<MPI_Aint> targets_;
  std::byte* got_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  unsigned turn_ = 0;
};

std::unique_ptr<Contender> make(const Workload& workload, bool by_fences) {
  if (workload.collective != Collective::alltoallv) return nullptr;
  return std::make_unique<WindowAlltoallv>(workload, by_fences);
}

}  // namespace

std::unique_ptr<Contender> make_mpi_fence_alltoallv(const Workload& workload) { return make(workload, true); }
std::unique_ptr<Contender> make_mpi_lock_alltoallv(const Workload& workload) { return make(workload, false); }

}  // namespace bench
