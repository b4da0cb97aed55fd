// SPDX-License-Identifier: Apache-2.0
// The table of predefined types.
#pragma once

#include "rma/mpi/types.hpp"

namespace sluice::mpi_rma {

/// The type, if it is one of the table; else null.
const Basic* named_type(MPI_Datatype type);

/// Another predefined type, as MPI_Type_create_f90_real makes: an element of `kind`.
const Basic* other_type(MPI_Datatype type, Kind kind);

}  // namespace sluice::mpi_rma
