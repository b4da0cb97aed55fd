// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals_mpi.hpp"

#include "apps/bench/make_mpi.hpp"

#include <mpi.h>

#include <stdexcept>

namespace bench {

bool under_mpi() {
  int running = 0;
  MPI_Initialized(&running);
  return running != 0;
}

std::unique_ptr<Contender> make_mpi_ping_pong(MpiMode mode, const Case& one_case) {
  switch (mode) {
    case MpiMode::send_recv: return make_send_recv_ping_pong(one_case);
    case MpiMode::persistent: return make_persistent_ping_pong(one_case);
    case MpiMode::put_flush: return make_put_flush_ping_pong(one_case, false);
    case MpiMode::put_flush_user: return make_put_flush_ping_pong(one_case, true);
    case MpiMode::pscw: return make_pscw_ping_pong(one_case);
    case MpiMode::fence: break;
  }
  return make_fence_ping_pong(one_case);
}

std::unique_ptr<Contender> make_mpi_flood(MpiMode mode, const Case& one_case) {
  switch (mode) {
    case MpiMode::send_recv: return make_send_recv_flood(one_case);
    case MpiMode::persistent: return make_persistent_flood(one_case);
    case MpiMode::put_flush: return make_put_flush_flood(one_case, false);
    case MpiMode::put_flush_user: return make_put_flush_flood(one_case, true);
    case MpiMode::pscw:
    case MpiMode::fence: break;
  }
  throw std::logic_error("no flood of messages in this mode of MPI");
}

}  // namespace bench
