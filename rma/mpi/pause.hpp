// SPDX-License-Identifier: Apache-2.0
// Waiting for words that peers write.
#pragma once

#include "rma/rest.hpp"

#include <chrono>
#include <string_view>

namespace sluice::mpi_rma {

class Ranks;

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
