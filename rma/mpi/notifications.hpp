// SPDX-License-Identifier: Apache-2.0
// The notification counters of a rank of a window (MPI Forum, issue 59).
#pragma once

#include "rma/mpi/epochs.hpp"

#include <sluice/context.hpp>
#include <sluice/stream.hpp>
#include <sluice/window.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::mpi_rma {

class Ranks;
class RmaWindow;

/// Number and place of the counters of a rank, for the other ranks. They fit into a word.
struct Counters {
  std::uint32_t count = 0;
  std::uint64_t window = 0;  ///< number of the window of Sluice's that has them; 0: there is none
  int refused = 0;           ///< class of the error, if this rank could not make its counters

  static Counters of_word(std::uint64_t word);
  std::uint64_t word() const;
  /// Name of that window.
  std::string name() const;
};

/// The counters of this rank: those of a window of Sluice's of their own, with 8 unused bytes. It is made by
/// `set`, so a window without notifications has no memory for them, and memory that MPI shares has counters too.
class Notifications {
 public:
  /// "mpi_assert_max_num_notify", of which Part has as many counters.
  static constexpr const char* kPromise = "mpi_assert_max_num_notify";

  explicit Notifications(MPI_Info info);

  /// Makes the counters that this rank has promised not to exceed. @throws Error
  Counters begin(Context& context);

  // With the lock of the window.

  /// Collective: gives each rank its number of counters, which are 0 then. @throws Refused at all ranks, or at none
  void set(RmaWindow& window, Epochs::Lock& lock, int number);
  /// @throws Refused{MPI_ERR_RMA_NOTIFICATION} unless `rank` has the counter
  static void check(const RmaWindow& window, int rank, int index);
  /// The count of a counter of this rank. @throws Refused; Error if a peer that could have notified has failed
  std::uint64_t value(const RmaWindow& window, int index);
  std::uint64_t reset(const RmaWindow& window, int index);
  /// Later work on the stream runs only once the value is reached. The lock may be left.
  void wait(RmaWindow& window, Epochs::Lock& lock, int index, std::uint64_t value, Stream stream);

  /// Calls of `value` in a row that saw nothing new.
  unsigned looks() const { return looks_; }

  /// For a program that waits, after so many `looks`. Without the lock.
  static void rest(const Ranks& ranks, unsigned looks);

  void close(std::optional<Timeout> timeout);
  /// The number of the promise; 0: none.
  int promised() const { return promised_; }
  /// How many counters the rank may have.
  int most() const;

 private:
  Counters make(Context& context, std::uint32_t count, Window& into) const;
  Counters offer(RmaWindow& window, int number, Window& into) const;

  int promised_ = 0;
  bool malformed_ = false;
  std::vector<std::uint64_t> seen_;   // by counter, what `value` has returned last
  unsigned looks_ = 0;                // calls of `value` since one saw another count
  std::vector<std::uint64_t> taken_;  // by counter, what all calls of `reset` have returned together
  Window window_;
  CallMutex enqueuing_;
};

/// The class of MPI_ERR_RMA_NOTIFICATION. Any thread, once MPI is initialised.
int notification_error();

}  // namespace sluice::mpi_rma
