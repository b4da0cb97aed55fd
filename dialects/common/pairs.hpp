// SPDX-License-Identifier: Apache-2.0
// The least and the largest value, and where it is.
#pragma once

#include "rma/mpi/types.hpp"

#include <mpi.h>

#include <cstddef>
#include <functional>

namespace sluice::stream_mpi {

/// Carries out MPI_MINLOC or MPI_MAXLOC on C's pairs of a value and an int (MPI 4.0, 6.9.4), without a call of MPI's,
/// so that the thread of a stream may use it at any thread level. Its arguments are those of Combiner::combine. Empty
/// for another operation or type.
std::function<void(const void* in, void* in_out, std::size_t count)> combine_pairs(MPI_Op op,
                                                                                   const mpi_rma::Basic& basic);

}  // namespace sluice::stream_mpi
