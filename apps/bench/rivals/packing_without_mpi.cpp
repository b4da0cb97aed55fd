// SPDX-License-Identifier: Apache-2.0
// Stands in for MPI's packing contenders in a build without MPI.
#include "apps/bench/ours/packing.hpp"
#include "apps/common/usage_error.hpp"

namespace bench {
namespace {

[[noreturn]] std::unique_ptr<Contender> refuse_rivals() {
  throw apps::UsageError("rivals of MPI are not possible: this program was built without MPI, or without Kokkos");
}

}  // namespace

std::unique_ptr<Contender> make_mpi_column_ping_pong(MpiPacking /*packing*/, const Workload& /*workload*/) {
  refuse_rivals();
}
std::unique_ptr<Contender> make_mpi_face_exchange(MpiPacking /*packing*/, const Workload& /*workload*/) {
  refuse_rivals();
}

}  // namespace bench
