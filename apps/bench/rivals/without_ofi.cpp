// SPDX-License-Identifier: Apache-2.0
// Stands in for the rivals of libfabric in a build without it.
#include "apps/bench/rivals/ofi.hpp"
#include "apps/common/usage_error.hpp"

namespace bench {
namespace {

constexpr const char* kAbsent = "this program was built without libfabric";

}  // namespace

std::string why_no_ofi(OfiMode /*mode*/, const Options& /*options*/) { return kAbsent; }
std::string ofi_library(const Options& /*options*/) { return {}; }

std::unique_ptr<Contender> make_ofi_ping_pong(OfiMode /*mode*/, const Workload& /*workload*/) {
  throw apps::UsageError(kAbsent);
}
std::unique_ptr<Contender> make_ofi_flood(OfiMode /*mode*/, const Workload& /*workload*/) {
  throw apps::UsageError(kAbsent);
}
std::unique_ptr<Contender> make_ofi_accesses(OfiMode /*mode*/, const Workload& /*workload*/) {
  throw apps::UsageError(kAbsent);
}

}  // namespace bench
