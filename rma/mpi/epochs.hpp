// SPDX-License-Identifier: Apache-2.0
// The three ways in which MPI synchronises the ranks of a window: fences, post and start, locks (MPI 4.0, 12.5). The
// protocols are those of Gerstenberger, Besta, Hoefler, "Enabling Highly-Scalable Remote Memory Access Programming with
// MPI-3 One Sided", SC 2013, with words at each rank that others change.
#pragma once

#include "rma/mpi/meeting.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

namespace sluice::mpi_rma {

class RmaWindow;

/// The epochs of one rank. Its calls have the lock of the window, and leave it while they wait for a peer.
class Epochs {
 public:
  using Lock = std::unique_lock<std::mutex>;
  explicit Epochs(RmaWindow& window);

  /// Words that a rank has. The first kPartWords are the window's.
  static std::size_t words(int ranks);
  static constexpr std::size_t kPartWords = 8;

  /// @throws Refused{MPI_ERR_RMA_SYNC}, as all below: the rank may not be accessed now.
  void check_access(int rank);
  /// @throws unless the rank, or every rank, is locked
  void check_locked(int rank) const;
  /// @throws if an epoch is open that only the program can close
  void check_idle() const;

  void fence(Lock& lock, int assertion);
  void post(const std::vector<int>& origins);
  void start(Lock& lock, const std::vector<int>& targets);
  void complete();
  void wait(Lock& lock);
  bool test();
  void lock(Lock& lock, int type, int rank, int assertion);
  void unlock(int rank);
  void lock_all(Lock& lock, int assertion);
  void unlock_all();

  /// Returns once all ranks have called it.
  void barrier(Lock& lock);

  /// The locks of accumulates at a rank that are no single atomic; there are kStripes of them.
  void begin_accumulate(Lock& lock, int rank, std::size_t stripe);
  void end_accumulate(int rank, std::size_t stripe);
  static constexpr std::size_t kStripes = 8;

 private:
  enum class Access : std::uint8_t { none, fence, start, lock, lock_all };
  enum class Exposure : std::uint8_t { none, fence, post };
  struct Held {
    int type;
    bool checked;  // not MPI_MODE_NOCHECK
  };

  void leave_fence(std::string_view call);
  template <class Ready>
  void await(Lock& lock, std::string_view what, Ready ready);
  std::uint64_t add(int rank, std::size_t word, std::uint64_t value);
  std::uint64_t own(std::size_t word) const;
  bool exposed() const;

  RmaWindow& window_;
  Access access_ = Access::none;
  Exposure exposure_ = Exposure::none;
  bool fence_used_ = false;               // an access was made since the last fence
  std::map<int, Held> held_;              // locks, by rank
  bool all_checked_ = true;               // lock_all without MPI_MODE_NOCHECK
  std::vector<int> targets_;              // of `start`
  std::map<int, std::uint64_t> started_;  // how often, by rank
  std::uint64_t completions_ = 0;         // that `wait` expects, since the beginning
  Meeting meeting_;
};

}  // namespace sluice::mpi_rma
