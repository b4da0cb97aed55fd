// SPDX-License-Identifier: Apache-2.0
// Errors of calls and of streams as codes.
#pragma once

#include "rma/mpi/refused.hpp"

#include <mpi.h>

#include <atomic>
#include <string>

namespace sluice::stream_mpi {

using mpi_rma::Refused;

// Codes that a dialect shares with MPI's error classes, which are positive.
inline constexpr int kNotReady = -1;
inline constexpr int kInvalidState = -2;
inline constexpr int kUnsupported = -3;

/// Checks and dereferences the pointer of a caller. @throws Refused{MPI_ERR_ARG} for null
template <class T>
T& argument(T* pointer, const char* what) {
  if (pointer == nullptr) throw Refused(MPI_ERR_ARG, std::string(what) + " is a null pointer");
  return *pointer;
}

/// Logs the exception that is being handled, and returns its code.
int report(const char* where) noexcept;

/// Runs `work()` and returns 0, or the code of what it throws.
template <class Work>
int guarded(const char* where, Work work) noexcept {
  try {
    work();
    return 0;
  } catch (...) {
    return report(where);
  }
}

/// The first error that a stream has met, until the host takes it. Any thread.
class Faults {
 public:
  /// 0 is no error. A timeout on a stream is MPI_ERR_OTHER, since it cannot be tried again.
  void note(int code) noexcept;
  /// Returns the code and forgets it; 0: none.
  int take() noexcept;

 private:
  std::atomic<int> code_{0};
};

}  // namespace sluice::stream_mpi
