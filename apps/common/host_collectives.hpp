// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/sluice.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace apps {

/// Collective operations that the host waits for: the few that programs need around their channels, by Sluice or by
/// MPI. All ranks call them in the same order; each call blocks until its result is ready.
class HostCollectives {
 public:
  using Sink = std::function<void(int rank, std::span<const std::byte> bytes)>;

  virtual ~HostCollectives() = default;

  /// Replaces the values of every rank by their sums over all ranks: the same bits everywhere (with MPI, as far as MPI
  /// guarantees that).
  virtual void sum(std::span<double> values) = 0;
  /// Replaces each value of every rank by the largest over all ranks.
  virtual void max(std::span<double> values) = 0;
  /// Rank 0 calls `sink` once for every rank, in their order; `bytes_of` is the number of bytes from each rank.
  virtual void gather(std::span<const std::byte> mine, std::span<const std::size_t> bytes_of, const Sink& sink) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier() = 0;

  double sum(double value);
  double max(double value);
};

/// By sluice/collectives.hpp, in program order.
std::unique_ptr<HostCollectives> make_sluice_collectives(sluice::Context& context);

/// By MPI. @throws UsageError if MPI does not run, or if the program was built without it.
std::unique_ptr<HostCollectives> make_mpi_collectives();

}  // namespace apps
