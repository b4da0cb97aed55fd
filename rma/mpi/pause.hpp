// SPDX-License-Identifier: Apache-2.0
// Waiting for words that peers write.
#pragma once

#include "rma/rest.hpp"

#include <mpi.h>

#include <chrono>
#include <string_view>

namespace sluice {
class Context;
}

namespace sluice::mpi_rma {

/// The pauses of one wait: short ones first, then longer and longer ones in which other programs may have the core. A
/// wait does not sleep before it has lasted as long as a few wakings take: else two ranks that wait for each other put
/// each other to sleep at every turn. MPI makes progress in the pauses, so that a message to this rank completes though
/// it waits in our call.
class Pause {
 public:
  /// `what`: of the warning that the wait lasts; a text that stays.
  Pause(Context& context, MPI_Comm comm, std::string_view what);
  /// @throws Error if a peer has died, or its memory cannot be reached.
  void operator()();

 private:
  void look_around();

  Context& context_;
  MPI_Comm comm_;
  std::string_view what_;
  rma::Rest rest_;
  int count_ = 0;
  std::chrono::steady_clock::time_point begin_{};
  std::chrono::steady_clock::time_point next_look_{};
  std::chrono::steady_clock::time_point next_warning_{};
};

}  // namespace sluice::mpi_rma
