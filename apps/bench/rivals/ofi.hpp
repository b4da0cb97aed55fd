// SPDX-License-Identifier: Apache-2.0
// libfabric itself as a rival: writes of the provider that --backend ofi:PROVIDER names, without any code of Sluice.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>

namespace bench {

/// How the target learns that a message has arrived.
enum class OfiMode {
  flag,       ///< by a second, smaller write after the first: it polls memory, and needs writes in order
  flag_wait,  ///< as flag, with a queue on which a thread could sleep (FI_WAIT_FD), though it polls
  data        ///< by the remote data that the write carries: it polls its completion queue
};

/// The reason why this mode cannot run with such a command line; empty if it can.
std::string why_no_ofi(OfiMode mode, const Options& options);

/// The library and its provider, for people.
std::string ofi_library(const Options& options);

std::unique_ptr<Contender> make_ofi_ping_pong(OfiMode mode, const Workload& workload);

/// A ring of `depth` slots with a credit for every half of it, like the floor.
std::unique_ptr<Contender> make_ofi_flood(OfiMode mode, const Workload& workload);

}  // namespace bench
