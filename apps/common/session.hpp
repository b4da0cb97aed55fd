// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/decomposition.hpp"
#include "apps/common/exchange.hpp"
#include "apps/common/host_collectives.hpp"
#include "apps/common/options.hpp"
#include "apps/common/report.hpp"

#include <sluice/sluice.hpp>

#include <memory>
#include <string>
#include <vector>

namespace apps {

/// This rank's share of a problem, and the objects for its work with the other ranks. Made before the Stepper; the
/// stream and the exchange on it (staged_exchange.hpp) are made later, because their work refers to both.
struct Session {
  Session(sluice::Context& context, const CommonOptions& options, const Decomposition& decomposition);

  Box block() const { return decomposition.box(rank); }
  /// Makes the exchange of `links`: through Sluice on `stream`, otherwise in program order.
  std::unique_ptr<Exchange> open_exchange(const Links& links, sluice::Stream stream);

  /// A Result with the values that are known before the run.
  Result result(const std::string& app) const;

  sluice::Context context;
  const CommonOptions options;
  const int rank;
  const Decomposition decomposition;
  const std::unique_ptr<HostCollectives> collectives;
};

/// Rank 0 checks that the files named by the options, and `others`, can be written: before a run, which may take long.
/// Only its machine needs their folders, except the timeline's folder: all ranks write the timeline. @throws UsageError
/// on all ranks
void check_outputs(sluice::Context& context, const CommonOptions& options, const std::vector<std::string>& others);

/// Names of the backends that moved the messages, of all ranks at rank 0; or the name of the comm. All ranks call it.
/// @param description  of this rank's channels
std::string backend_of(const Session& session, const std::string& description);

/// Replaces the times by those of the slowest rank, on all ranks.
void take_slowest(Result& result, HostCollectives& collectives);

}  // namespace apps
