// SPDX-License-Identifier: Apache-2.0
// The three ways in which MPI synchronises the ranks of a window: fences, post and start, locks (MPI 4.0, 12.5). What
// MPI has beside the epochs of rma/epochs.hpp: epochs of fences, and assertions.
#pragma once

#include "rma/epochs.hpp"
#include "rma/mpi/call_mutex.hpp"
#include "rma/mpi/meeting.hpp"
#include "rma/mpi/turns.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace sluice::mpi_rma {

class RmaWindow;

/// The epochs of one rank. Its calls have the lock of the window, and leave it while they wait for a peer.
class Epochs {
 public:
  using Lock = std::unique_lock<CallMutex>;
  explicit Epochs(RmaWindow& window);

  // The words of a rank: those of its part of the window; the turns of accumulates; those of rma/words.hpp; how many
  // access epochs of peers have completed, since the beginning; those of the meeting.
  static constexpr std::size_t kPartWords = 8;
  static constexpr std::size_t kTurns = kPartWords;
  static constexpr std::size_t kEpochs = kTurns + Turns::kWords;
  static constexpr std::size_t kCompleted = kEpochs + rma::at::kEpochsEnd / rma::kWord;
  static constexpr std::size_t kMeeting = kCompleted + 8;
  static constexpr std::size_t kWords = kMeeting + Meeting::kWords;

  /// True if the rank may be accessed now, which the caller then does.
  [[gnu::always_inline]] bool permits(int rank) {
    if (epochs_.accesses(rank)) return true;
    fence_used_ = fence_used_ || in_fence_;
    return in_fence_;
  }
  bool locks(int rank) const { return epochs_.locks(rank); }
  /// @throws Refused{MPI_ERR_RMA_SYNC}, as all below: the rank may not be accessed now.
  void check_access(int rank);
  /// @throws unless the rank, or any rank, is locked
  void check_locked(int rank) const;
  /// @throws if an epoch is open that only the program can close, and it can do so
  void check_idle() const;

  void fence(Lock& lock, int assertion);
  void post(Lock& lock, const std::vector<int>& origins);
  void start(Lock& lock, const std::vector<int>& targets);
  void complete(Lock& lock);
  void wait(Lock& lock);
  bool test(Lock& lock);
  void lock(Lock& lock, int type, int rank, int assertion);
  void unlock(Lock& lock, int rank);
  // The short ways, of a program whose calls come one after another. False: nothing has changed, and `lock` or `unlock`
  // is to be called.
  bool lock_now(int type, int rank, int assertion);
  bool unlock_now(int rank);
  void lock_all(Lock& lock, int assertion);
  void unlock_all(Lock& lock);

  /// Returns once all ranks have called it.
  void barrier(Lock& lock);

  /// Takes the turn of accumulates to a block of a rank, whose word is at `word` of its turns. The call may wait.
  /// @throws Error if a peer has died; every call that finds a dead rank's turn, or a broken one, does
  void take_turn(Lock& lock, int rank, std::size_t word);
  /// `next`: 0, or Turns::kBroken.
  void end_turn(int rank, std::size_t word, std::uint64_t next) noexcept;

 private:
  class Call;
  class MastersNow;
  void leave_fence(std::string_view call);
  /// Makes a call of the epochs, and notes whether a peer is lost.
  void call(Lock& lock, auto work);
  detail::MappedWords words_now(int rank) const;

  RmaWindow& window_;
  std::uint64_t* own_;  // the words of this rank
  rma::Epochs epochs_;
  Meeting meeting_;
  bool in_fence_ = false;          // a fence has opened an epoch
  bool fence_used_ = false;        // an access was made since
  std::uint64_t completions_ = 0;  // of origins, that were taken
  bool broken_ = false;            // by the loss of a peer: epochs do not end any more
};

}  // namespace sluice::mpi_rma
