// SPDX-License-Identifier: Apache-2.0
// Stands in for exchange_mpi.cpp and collectives_mpi.cpp in a build without MPI.
#include "apps/common/collectives.hpp"
#include "apps/common/exchange.hpp"
#include "apps/common/usage_error.hpp"

namespace apps {
namespace {

constexpr const char* kWhyNot = "--comm mpi and mpi_persistent are not possible: this program was built without MPI";

}  // namespace

std::unique_ptr<Exchange> make_mpi_exchange(const Links& /*links*/, MpiRequests /*requests*/) {
  throw UsageError(kWhyNot);
}

std::unique_ptr<Collectives> make_mpi_collectives() { throw UsageError(kWhyNot); }

}  // namespace apps
