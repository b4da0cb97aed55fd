// SPDX-License-Identifier: Apache-2.0
// Waiting for words that peers write.
#pragma once

#include <mpi.h>

#include <chrono>
#include <string_view>

namespace sluice {
class Context;
}

namespace sluice::mpi_rma {

/// The pauses of one wait: short ones first, then longer and longer ones in which other ranks may have the core. MPI
/// makes progress in them, so that a message to this rank completes though it waits in our call.
class Pause {
 public:
  /// `what`: of the warning that the wait lasts; a text that stays.
  Pause(Context& context, MPI_Comm comm, std::string_view what) : context_(context), comm_(comm), what_(what) {}
  /// @throws Error if a peer has died, or its memory cannot be reached.
  void operator()();

 private:
  void look_around();

  Context& context_;
  MPI_Comm comm_;
  std::string_view what_;
  int count_ = 0;
  std::chrono::steady_clock::time_point begin_{};
  std::chrono::steady_clock::time_point next_look_{};
  std::chrono::steady_clock::time_point next_warning_{};
};

}  // namespace sluice::mpi_rma
