// SPDX-License-Identifier: Apache-2.0
// Stands in for `stream_mpi` in a build without MPI.
#include "apps/bench/ours/stream_mpi.hpp"
#include "apps/common/usage_error.hpp"

namespace bench {

std::string why_no_stream_mpi() { return "stream_mpi is not in this sluice-bench: it was built without MPI"; }

std::unique_ptr<Contender> make_mpis_ping_pong(const Workload& /*workload*/) {
  throw apps::UsageError(why_no_stream_mpi());
}
std::unique_ptr<Contender> make_mpis_halo(const Workload& /*workload*/) { throw apps::UsageError(why_no_stream_mpi()); }

}  // namespace bench
