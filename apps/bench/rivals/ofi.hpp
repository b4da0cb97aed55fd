// SPDX-License-Identifier: Apache-2.0
// libfabric itself as a rival: writes by the provider that --backend ofi:PROVIDER names. Sluice only sets them up.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>

namespace bench {

/// How the target learns that a message has arrived. In every mode the message is in its slot by then.
enum class OfiMode {
  /// A second, smaller write raises a counter, which the target polls in memory. The provider must promise that writes
  /// arrive in order (FI_ORDER_WAW): otherwise the counter could overtake the message.
  flag,
  /// As `flag`, with a completion queue on which a thread could sleep (FI_WAIT_FD), though it polls.
  flag_wait,
  /// The write carries remote data, which names the slot; the target polls its completion queue. The provider reports
  /// remote data when all bytes of that write are in place (fi_rma(3), FI_REMOTE_CQ_DATA). Messages may overtake each
  /// other: the target waits for the slot that it reads next, and only counts credits and answers.
  data,
  /// The origin waits for the completion of each access (FI_DELIVERY_COMPLETE).
  access,
  /// As `access`, with a completion queue as for `flag_wait`.
  access_wait
};

constexpr bool is_of_accesses(OfiMode mode) { return mode == OfiMode::access || mode == OfiMode::access_wait; }
constexpr bool may_sleep(OfiMode mode) { return mode == OfiMode::flag_wait || mode == OfiMode::access_wait; }

/// The reason why this mode cannot run with this command line; empty if it can.
std::string why_no_ofi(OfiMode mode, const Options& options);

/// The library and its provider, for people.
std::string ofi_library(const Options& options);

std::unique_ptr<Contender> make_ofi_ping_pong(OfiMode mode, const Workload& workload);
std::unique_ptr<Contender> make_ofi_flood(OfiMode mode, const Workload& workload);
/// The accesses of the bench `rma`; nullptr for a flush, since each access is waited for.
std::unique_ptr<Contender> make_ofi_accesses(OfiMode mode, const Workload& workload);

}  // namespace bench
