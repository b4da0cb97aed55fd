// SPDX-License-Identifier: Apache-2.0
// Stands in for the packing contenders in a build without Kokkos.
#include "apps/bench/ours/packing.hpp"
#include "apps/common/usage_error.hpp"

namespace bench {
namespace {

[[noreturn]] Ours refuse() { throw apps::UsageError(why_no_packing()); }

}  // namespace

std::string why_no_packing() { return "packing is not in this sluice-bench: it was built without Kokkos"; }
std::shared_ptr<void> start_kokkos(const std::string& /*bench*/) { return nullptr; }

Ours make_column_ping_pong(const Workload& /*workload*/) { refuse(); }
Ours make_face_exchange(const Workload& /*workload*/) { refuse(); }

}  // namespace bench
