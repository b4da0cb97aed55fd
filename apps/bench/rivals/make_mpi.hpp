// SPDX-License-Identifier: Apache-2.0
// The contenders of MPI, a function for each mode: implemented by two_sided_mpi.cpp and one_sided_mpi.cpp, called by
// mpi.cpp.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>

namespace bench {

std::unique_ptr<Contender> make_send_recv_ping_pong(const Workload& workload);
std::unique_ptr<Contender> make_persistent_ping_pong(const Workload& workload);
std::unique_ptr<Contender> make_put_flush_ping_pong(const Workload& workload, bool user_memory);
std::unique_ptr<Contender> make_pscw_ping_pong(const Workload& workload);
std::unique_ptr<Contender> make_fence_ping_pong(const Workload& workload);

std::unique_ptr<Contender> make_send_recv_flood(const Workload& workload);
std::unique_ptr<Contender> make_persistent_flood(const Workload& workload);
std::unique_ptr<Contender> make_put_flush_flood(const Workload& workload, bool user_memory);

}  // namespace bench
