// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/exchange.hpp"
#include "apps/common/session.hpp"

#include <sluice/collectives.hpp>
#include <sluice/sluice.hpp>

#include <memory>
#include <string>
#include <vector>

namespace apps {

/// A collective that a stream starts and waits for, again and again; work that needs neither what is sent nor the
/// result has its place in between.
///
/// Sluice's are enqueued and return at once; MPI's run in program order.
class StreamCollective {
 public:
  virtual ~StreamCollective() = default;
  virtual void start() = 0;
  virtual void wait() = 0;
  /// Name of the transport, for people; empty unless it is Sluice.
  virtual std::string describe() const { return ""; }
};

/// Replaces doubles of every rank by their sums over all ranks, by what the options name. Only Sluice's can be
/// enqueued on `stream`: for others the host waits for the stream before each.
std::unique_ptr<StreamCollective> open_sum(const Session& session, const sluice::Slice& numbers, sluice::Stream stream);

/// Blocks that a group of ranks exchange: one to and one from each rank of the group, which are in `from` and `to`.
struct GroupBlocks {
  std::vector<sluice::Block> from;
  std::vector<sluice::Block> to;
};

/// Moves blocks within groups of ranks. All ranks open such exchanges in the same order. `name`: of this one.
/// `has_others`: others are started before this one is waited for.
std::unique_ptr<StreamCollective> open_alltoall(const Session& session, const std::string& name,
                                                const GroupBlocks& blocks, sluice::Stream stream, bool has_others);

/// By MPI_Iallreduce and MPI_Ialltoallv; if the requests are to be persistent and MPI has such, by those of
/// MPI_Allreduce_init and MPI_Alltoallv_init. @throws UsageError as make_mpi_exchange
std::unique_ptr<StreamCollective> make_mpi_sum(const sluice::Slice& numbers, MpiRequests requests);
std::unique_ptr<StreamCollective> make_mpi_alltoall(const GroupBlocks& blocks, MpiRequests requests);

}  // namespace apps
