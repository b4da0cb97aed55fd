// SPDX-License-Identifier: Apache-2.0
// MPI's predefined operations on elements.
#pragma once

#include "rma/mpi/types.hpp"

#include <mpi.h>

#include <cstddef>

namespace sluice::mpi_rma {

/// True if the operation is one of MPI's own, and defined for elements of the kind (MPI 4.0, 6.9.2 and 6.9.4).
bool defined(MPI_Op op, Kind kind);
/// @throws Refused{MPI_ERR_OP} if the operation is not one of MPI's own, or not defined for this type.
void check_operation(MPI_Op op, const Basic& basic);

/// Copies `count` elements that lie at their extent, and leaves what is between their data.
void copy_elements(const Basic& basic, std::byte* to, const std::byte* from, std::size_t count);

/// Changes `count` elements at `there`, which lie at their extent, by those at `operands`.
void apply(MPI_Op op, const Basic& basic, const void* operands, void* there, std::size_t count);

}  // namespace sluice::mpi_rma
