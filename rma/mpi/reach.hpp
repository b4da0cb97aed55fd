// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rma/mpi/access.hpp"
#include "rma/mpi/types.hpp"

#include <cstdint>

namespace sluice::mpi_rma {

/// Returns the beginning of an access, in bytes from the beginning of the rank's memory; the elements are at their
/// offsets from there. @throws Refused{MPI_ERR_RMA_RANGE} if one of them is outside of that memory.
std::int64_t reach(const RmaWindow& window, const There& there, const Flat& flat);

}  // namespace sluice::mpi_rma
