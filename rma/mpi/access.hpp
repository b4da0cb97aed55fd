// SPDX-License-Identifier: Apache-2.0
// Puts, gets and accumulates of MPI's datatypes.
#pragma once

#include "rma/mpi/epochs.hpp"

#include <mpi.h>

namespace sluice::mpi_rma {

class RmaWindow;

/// Memory of this rank.
struct Here {
  void* address = nullptr;
  MPI_Count count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
};

/// Memory of a rank of the window.
struct There {
  int rank = 0;
  MPI_Aint displacement = 0;
  MPI_Count count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
};

// With the lock of the window. @throws Refused, and nothing has changed.

void put(RmaWindow& window, const Here& from, const There& to);
void get(RmaWindow& window, const Here& to, const There& from);
/// `result`: the elements before, if its type is not null.
void accumulate(RmaWindow& window, Epochs::Lock& lock, const Here& operands, const Here& result, const There& to,
                MPI_Op op);
void compare_and_swap(RmaWindow& window, Epochs::Lock& lock, const void* desired, const void* expected, void* result,
                      const There& to);

}  // namespace sluice::mpi_rma
