// SPDX-License-Identifier: Apache-2.0
// Collectives of MPI, which block the host.
#include "apps/bench/harness/collective.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <mpi.h>

#include <algorithm>
#include <vector>

namespace bench {
namespace {

class MpiCollective : public Contender {
 public:
  explicit MpiCollective(const Workload& workload)
      : workload_(workload), from_(1 + bytes_of(workload).given), to_(1 + bytes_of(workload).got),
        count_(static_cast<int>(workload.bytes)) {
    const sluice::Rank own = workload.context.rank();
    const auto [given, got] = bytes_of(workload);
    const std::size_t offsets = workload.collective == Collective::alltoallv ? std::max(given, got) : 0;
    apps::check_counts(world_.communicator(), std::max(workload.bytes, offsets), "a collective", "bytes");
    const bool owns = own % workload.sharers == 0;
    MPI_Comm_split(world_.communicator(), owns ? 0 : MPI_UNDEFINED, own, &owners_);
    for (sluice::Rank rank = 0; rank < workload.context.size(); ++rank) {
      sent_.push_back(static_cast<int>(uneven_bytes(own, rank, workload.bytes)));
      received_.push_back(static_cast<int>(uneven_bytes(rank, own, workload.bytes)));
      sources_.push_back(static_cast<int>(uneven_sent(own, rank, workload.bytes)));
      targets_.push_back(static_cast<int>(uneven_received(own, rank, workload.bytes)));
    }
  }

  MpiCollective(const MpiCollective&) = delete;
  MpiCollective& operator=(const MpiCollective&) = delete;
  ~MpiCollective() override {
    if (owners_ != MPI_COMM_NULL) MPI_Comm_free(&owners_);
  }

  double run(long count) override {
    return timed_steps(count, [this] {
      const bool broadcast = workload_.collective == Collective::broadcast;
      compute(workload_, from_.data(), turn_);
      step(root_of(workload_, turn_));
      read(workload_, (broadcast ? from_ : to_).data(), turn_);
      ++turn_;
    });
  }
  long period() const override { return period_of(workload_); }

 private:
  void sum(MPI_Comm among) {
    MPI_Allreduce(from_.data(), to_.data(), count_ / static_cast<int>(sizeof(double)), MPI_DOUBLE, MPI_SUM, among);
  }

  /// Between barriers: the numbers of all sharers are there before, and the sums behind.
  void sum_of_owners() {
    MPI_Barrier(world_.communicator());
    if (owners_ != MPI_COMM_NULL) sum(owners_);
    MPI_Barrier(world_.communicator());
  }

  void step(sluice::Rank root) {
    const MPI_Comm all = world_.communicator();
    switch (workload_.collective) {
      case Collective::barrier: MPI_Barrier(all); return;
      case Collective::allreduce: return workload_.sharers > 1 ? sum_of_owners() : sum(all);
      case Collective::broadcast: MPI_Bcast(from_.data(), count_, MPI_BYTE, root, all); return;
      case Collective::allgather:
        MPI_Allgather(from_.data(), count_, MPI_BYTE, to_.data(), count_, MPI_BYTE, all);
        return;
      case Collective::alltoall:
        MPI_Alltoall(from_.data(), count_, MPI_BYTE, to_.data(), count_, MPI_BYTE, all);
        return;
      case Collective::alltoallv:
        MPI_Alltoallv(from_.data(), sent_.data(), sources_.data(), MPI_BYTE, to_.data(), received_.data(),
                      targets_.data(), MPI_BYTE, all);
        return;
    }
  }

  const Workload workload_;
  apps::MpiWorld world_;
  MPI_Comm owners_ = MPI_COMM_NULL;  // of shared arrays
  Pages from_;
  Pages to_;
  int count_;
  unsigned turn_ = 0;
  // Counts and offsets of alltoallv, in bytes.
  std::vector<int> sent_;
  std::vector<int> received_;
  std::vector<int> sources_;
  std::vector<int> targets_;
};

}  // namespace

std::unique_ptr<Contender> make_mpi_collective(const Workload& workload) {
  return std::make_unique<MpiCollective>(workload);
}

}  // namespace bench
