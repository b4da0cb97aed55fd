// SPDX-License-Identifier: Apache-2.0
// Collectives of MPI, which block the host.
#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/common/mpi_world.hpp"

#include <mpi.h>

#include <algorithm>

namespace bench {
namespace {

class MpiCollective : public Contender {
 public:
  explicit MpiCollective(const Workload& workload)
      : workload_(workload), from_(all_bytes()), to_(all_bytes()), count_(static_cast<int>(workload.bytes)) {}

  double run(long count) override {
    return timed_steps(count, [this] { step(); });
  }

 private:
  std::size_t all_bytes() const {
    return std::max<std::size_t>(64, workload_.bytes * static_cast<std::size_t>(workload_.context.size()));
  }

  void step() {
    const MPI_Comm all = world_.communicator();
    switch (workload_.collective) {
      case Collective::barrier: MPI_Barrier(all); return;
      case Collective::allreduce:
        MPI_Allreduce(from_.data(), to_.data(), count_ / static_cast<int>(sizeof(double)), MPI_DOUBLE, MPI_SUM, all);
        return;
      case Collective::broadcast:
        MPI_Bcast(from_.data(), count_, MPI_BYTE, turn_++ % 2 == 0 ? 0 : workload_.context.size() - 1, all);
        return;
      case Collective::allgather:
        MPI_Allgather(from_.data(), count_, MPI_BYTE, to_.data(), count_, MPI_BYTE, all);
        return;
      case Collective::alltoall:
        MPI_Alltoall(from_.data(), count_, MPI_BYTE, to_.data(), count_, MPI_BYTE, all);
        return;
    }
  }

  const Workload workload_;
  apps::MpiWorld world_;
  Pages from_;
  Pages to_;
  int count_;
  unsigned turn_ = 0;
};

}  // namespace

std::unique_ptr<Contender> make_mpi_collective(const Workload& workload) {
  return std::make_unique<MpiCollective>(workload);
}

}  // namespace bench
