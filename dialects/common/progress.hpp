// SPDX-License-Identifier: Apache-2.0
// Progress of MPI while a call of the program waits.
#pragma once

#include "base/meanwhile.hpp"

namespace sluice::stream_mpi {

/// While it lives, the waits of this thread let MPI make progress: the awaited peer may be in a call of MPI that needs
/// this rank. Only for calls of the program: below MPI_THREAD_MULTIPLE, the threads of the library may not call MPI.
class MpiProgress {
 public:
  MpiProgress() noexcept;

  /// In MPI_Init, and in MPI_Finalize.
  static void prepare();
  static void end() noexcept;

 private:
  base::Meanwhile meanwhile_;
};

}  // namespace sluice::stream_mpi
