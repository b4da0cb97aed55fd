// SPDX-License-Identifier: Apache-2.0
// MPI's predefined operations on elements.
#pragma once

#include "rma/mpi/types.hpp"

#include <sluice/ops.hpp>

#include <mpi.h>

#include <cstddef>
#include <optional>

namespace sluice::mpi_rma {

/// @throws Refused{MPI_ERR_OP} if the operation is not one of MPI's own, or not defined for this type.
void check_operation(MPI_Op op, const Basic& basic);

/// Sluice's operation, for integers and floating-point numbers; none: it has no such.
std::optional<Op> operation_of(MPI_Op op, const Basic& basic);

/// Changes `count` elements at `there`, which lie at their extent, by those at `operands`.
void apply(MPI_Op op, const Basic& basic, const void* operands, void* there, std::size_t count);

}  // namespace sluice::mpi_rma
