// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/sluice.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace apps {

/// The few collective operations that applications need around their channels. All ranks call them in the same order,
/// from the host; each call blocks until its result is ready.
class Collectives {
 public:
  using Sink = std::function<void(int rank, std::span<const std::byte> bytes)>;

  virtual ~Collectives() = default;

  /// Replaces the values of every rank by their sums over all ranks: the same bits everywhere (with MPI, as far as MPI
  /// guarantees that). At most kMaxValues values: on channels, @throws std::length_error for more.
  virtual void sum(std::span<double> values) = 0;
  /// Replaces each value of every rank by the largest over all ranks.
  virtual void max(std::span<double> values) = 0;
  /// Rank 0 calls `sink` once for every rank, in their order; `bytes_of` is the number of bytes from each rank.
  virtual void gather(std::span<const std::byte> mine, std::span<const std::size_t> bytes_of, const Sink& sink) = 0;

  double sum(double value);
  double max(double value);
  /// Returns when all ranks have called it.
  void barrier();

  static constexpr std::size_t kMaxValues = 32;
};

/// On channels, in a scope of their own: recursive doubling (Thakur, Rabenseifner, Gropp: Optimization of Collective
/// Communication Operations in MPICH, 2005), so that a rank has channels to about log2(size) others.
std::unique_ptr<Collectives> make_sluice_collectives(sluice::Context& context);

/// By MPI. @throws UsageError if MPI does not run, or if the program was built without it.
std::unique_ptr<Collectives> make_mpi_collectives();

}  // namespace apps
