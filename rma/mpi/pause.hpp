// SPDX-License-Identifier: Apache-2.0
// Waiting for words that peers write.
#pragma once

#include "rma/rest.hpp"

#include <chrono>
#include <string_view>

namespace sluice::mpi_rma {

class Ranks;

/// Lets MPI make progress, so that messages of this rank complete.
void progress(const Ranks& ranks);

/// For calls that a program may repeat until a peer has done something: `progress`, and where ranks outnumber cores it
/// gives the core away. Without the lock of a window.
void poll(const Ranks& ranks);

/// Counts such calls. One in so many polls, and looks whether owners have died, which takes longer than a put.
class Looks {
 public:
  /// For the short way of a call. False: the call has to go the long way, where `due` is true.
  bool may_wait() noexcept {
    if (--left_ != 0) return true;
    left_ = 1;
    return false;
  }
  bool due() noexcept {
    if (--left_ != 0) return false;
    left_ = kEvery;
    return true;
  }

 private:
  /// A prime: owners whose memory is drained in turn are all looked at.
  static constexpr unsigned int kEvery = 127;

  unsigned int left_ = kEvery;
};

/// The pauses of one wait: short ones first, then longer and longer ones in which other programs may have the core. A
/// wait does not sleep before it has lasted as long as a few wakings take: else two ranks that wait for each other put
/// each other to sleep at every turn. MPI makes progress in the pauses, so that a message to this rank completes though
/// it waits in our call.
class Pause {
 public:
  /// `what`: of the warning that the wait lasts; a text that stays.
  Pause(const Ranks& ranks, std::string_view what);
  /// @throws Error, in each wait that lasts, if one of the ranks has died.
  void operator()();

 private:
  void look_around();

  const Ranks& ranks_;
  std::string_view what_;
  rma::Rest rest_;
  int count_ = 0;
  std::chrono::steady_clock::time_point begin_{};
  std::chrono::steady_clock::time_point next_look_{};
  std::chrono::steady_clock::time_point next_warning_{};
};

}  // namespace sluice::mpi_rma
