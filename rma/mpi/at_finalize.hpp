// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

namespace sluice::mpi_rma {

/// Calls `work` in MPI_Finalize: MPI frees the attributes of MPI_COMM_SELF before anything else there, the last one
/// first (MPI 4.0, 11.2.4).
inline void at_finalize(MPI_Comm_delete_attr_function* work) {
  int key = MPI_KEYVAL_INVALID;
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, work, &key, nullptr);
  PMPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

}  // namespace sluice::mpi_rma
