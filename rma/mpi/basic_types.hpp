// SPDX-License-Identifier: Apache-2.0
// The table of predefined types.
#pragma once

#include "rma/mpi/types.hpp"

namespace sluice::mpi_rma {

/// The type, if it is predefined and has a name; else null.
const Basic* named_type(MPI_Datatype type);

/// A predefined type without a name, as MPI_Type_create_f90_real makes: an element of `kind`.
const Basic* unnamed_type(MPI_Datatype type, Kind kind);

}  // namespace sluice::mpi_rma
