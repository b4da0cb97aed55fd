// SPDX-License-Identifier: Apache-2.0
// Stands in for exchange_mpi.cpp, host_collectives_mpi.cpp and stream_collective_mpi.cpp in a build without MPI.
#include "apps/common/exchange.hpp"
#include "apps/common/host_collectives.hpp"
#include "apps/common/stream_collective.hpp"
#include "apps/common/usage_error.hpp"

namespace apps {
namespace {

constexpr const char* kWhyNot = "--comm mpi and mpi_persistent are not possible: this program was built without MPI";

}  // namespace

std::unique_ptr<Exchange> make_mpi_exchange(const Links& /*links*/, MpiRequests /*requests*/) {
  throw UsageError(kWhyNot);
}

std::unique_ptr<HostCollectives> make_mpi_collectives() { throw UsageError(kWhyNot); }

std::unique_ptr<StreamCollective> make_mpi_sum(const sluice::Slice& /*numbers*/, MpiRequests /*requests*/) {
  throw UsageError(kWhyNot);
}

std::unique_ptr<StreamCollective> make_mpi_alltoall(const GroupBlocks& /*blocks*/, MpiRequests /*requests*/) {
  throw UsageError(kWhyNot);
}

}  // namespace apps
