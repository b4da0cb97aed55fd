// SPDX-License-Identifier: Apache-2.0
// Accesses of MPI's: arguments, epoch, notification and request.
#pragma once

#include "rma/mpi/access.hpp"

#include <mpi.h>

#include <optional>

namespace sluice::mpi_rma {

/// The window of an access, and the request and notification that some calls have.
struct Call {
  MPI_Win win;
  MPI_Request* request = nullptr;        ///< null: the call has none
  std::optional<int> notification = {};  ///< counter of the target
};

inline Here here(const void* address, MPI_Count count, MPI_Datatype type) {
  return {const_cast<void*>(address), count, type};
}

/// The three buffers of MPI_Compare_and_swap.
struct Swap {
  const void* desired;
  const void* expected;
  void* result;
};

// Each checks the epoch, accesses, notifies, and returns what the call returns. Nothing: the call has to go to MPI,
// which serves the window, or refuses the arguments and calls the error handler. A window of MPI's cannot notify.

std::optional<int> put(const Call& call, const Here& from, const There& to);
std::optional<int> get(const Call& call, const Here& to, const There& from);
/// `result`: null if the elements before are not wanted.
std::optional<int> change(const Call& call, const Here& operands, const Here* result, const There& to, MPI_Op op);
std::optional<int> compare_and_swap(const Call& call, const Swap& buffers, const There& to);

}  // namespace sluice::mpi_rma
