// SPDX-License-Identifier: Apache-2.0
#include "apps/common/host_collectives.hpp"
#include "apps/common/mpi_world.hpp"

#include <algorithm>
#include <vector>

namespace apps {
namespace {

constexpr int kMpiGatherTag = 1;
constexpr std::size_t kMostBytes = std::size_t{1} << 24;  // counts are ints

class MpiCollectives : public HostCollectives {
 public:
  using HostCollectives::max;
  using HostCollectives::sum;

  void sum(std::span<double> values) override { reduce(values, MPI_SUM); }
  void max(std::span<double> values) override { reduce(values, MPI_MAX); }
  void barrier() override { MPI_Barrier(world_.communicator()); }

  void gather(std::span<const std::byte> mine, std::span<const std::size_t> bytes_of, const Sink& sink) override {
    int rank = 0;
    MPI_Comm_rank(world_.communicator(), &rank);
    if (rank != 0) {
      for (std::size_t at = 0; at < mine.size(); at += kMostBytes)
        MPI_Send(mine.data() + at, count(mine.size() - at), MPI_BYTE, 0, kMpiGatherTag, world_.communicator());
      return;
    }
    sink(0, mine);
    for (int from = 1; from < static_cast<int>(bytes_of.size()); ++from) {
      std::vector<std::byte> all(bytes_of[from]);
      for (std::size_t at = 0; at < all.size(); at += kMostBytes)
        MPI_Recv(all.data() + at, count(all.size() - at), MPI_BYTE, from, kMpiGatherTag, world_.communicator(),
                 MPI_STATUS_IGNORE);
      sink(from, all);
    }
  }

 private:
  static int count(std::size_t bytes) { return static_cast<int>(std::min(bytes, kMostBytes)); }

  void reduce(std::span<double> values, MPI_Op operation) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, operation,
                  world_.communicator());
  }

  MpiWorld world_;
};

}  // namespace

std::unique_ptr<HostCollectives> make_mpi_collectives() { return std::make_unique<MpiCollectives>(); }

}  // namespace apps
