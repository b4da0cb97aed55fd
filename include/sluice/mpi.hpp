// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/export.hpp>
#include <sluice/run.hpp>

#include <mpi.h>

namespace sluice::mpi {

/// A context whose ranks are those of `communicator`, an intracommunicator. Collective: all ranks of the communicator
/// call it, and each returns when all are ready. MPI must be initialised, at any thread level. Sluice calls MPI only
/// inside this function, from the calling thread, on a duplicate of the communicator, which is freed before the return.
/// Several contexts may live at once. The channels must be closed before the program ends MPI.
///
/// The backend `mpi` moves the data by MPI itself. A context that names it (Options::backends, SLUICE_BACKENDS) needs
/// an MPI that was initialised with MPI_THREAD_MULTIPLE. Sluice's threads then call MPI as long as the context lives,
/// on a duplicate of the communicator that is freed with the context, which must be gone when the program ends MPI.
/// @throws Error{Code::misuse} if MPI is not initialised, or is finalised already; {Code::bad_argument} for an
///   intercommunicator or MPI_COMM_NULL, a bad value in `options` or in a SLUICE_ variable, and for the backend `mpi`
///   on an MPI of a lower level; {Code::transport} for an error that MPI returns; {Code::out_of_resources}.
SLUICE_EXPORT Context context(MPI_Comm communicator, const Options& options = {});

}  // namespace sluice::mpi
