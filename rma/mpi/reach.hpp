// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rma/mpi/access.hpp"
#include "rma/mpi/types.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>

namespace sluice::mpi_rma {

/// Returns the bytes or the elements of `count` values. @throws Refused{MPI_ERR_RMA_RANGE} for 2^64 or more
std::size_t total(std::size_t of_one, MPI_Count count);

/// Returns the beginning of an access, in bytes from the beginning of the rank's memory; the elements are at their
/// offsets from there. @throws Refused{MPI_ERR_RMA_RANGE} if one of them is outside of that memory.
std::int64_t reach(const RmaWindow& window, const There& there, const Flat& flat);

}  // namespace sluice::mpi_rma
