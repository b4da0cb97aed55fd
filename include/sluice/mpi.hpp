// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/run.hpp>

#include <mpi.h>

namespace sluice::mpi {

/// A context on a duplicate of `communicator`, with its ranks; collective over it. MPI is called only in here, from the
/// calling thread, at any thread level, and must be initialised. Several contexts may live at once.
/// @throws Error{Code::out_of_resources}, and Error{Code::misuse} where MPI is not initialised.
SLUICE_EXPORT Context context(MPI_Comm communicator, const Options& options = {});

}  // namespace sluice::mpi
