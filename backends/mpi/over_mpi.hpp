// SPDX-License-Identifier: Apache-2.0
// The messages of this backend as MPI sends them: the only part that calls MPI, in the library that links it.
#pragma once

#include <mpi.h>

namespace sluice::backends::mpi {

/// While this lives, the next context of the calling thread that names the backend gets a duplicate of `communicator`
/// for its messages. Without one, messages stay within the process: its ranks are threads.
class ForNextContext {
 public:
  /// `wanted`: the context names the backend. Then the call is collective. @throws std::runtime_error
  ForNextContext(MPI_Comm communicator, bool wanted);
  ForNextContext(const ForNextContext&) = delete;
  ForNextContext& operator=(const ForNextContext&) = delete;
  ~ForNextContext();
};

}  // namespace sluice::backends::mpi
