// SPDX-License-Identifier: Apache-2.0
// Accumulates on memory that this process maps, by atomics of the processor.
#pragma once

#include "rma/mpi/recent.hpp"
#include "rma/mpi/types.hpp"

#include <mpi.h>

#include <cstddef>

namespace sluice::mpi_rma {

/// Changes the elements at `at` by as many operands; `bytes` of each. Each element changes in one step; several that
/// adjoin may change in the same one. `before`: for the elements before; null: they are not wanted.
using ChangeElements = void (*)(std::byte* at, const std::byte* operands, std::byte* before, std::size_t bytes);

/// For elements of 1, 2, 4 or 8 bytes at multiples of their size. Null: there is no such step for the operation or the
/// type.
ChangeElements change_of(MPI_Op op, const Basic& basic);

/// The step of an operation on a predefined type.
struct KnownChange {
  MPI_Op op = MPI_OP_NULL;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  ChangeElements steps = nullptr;  ///< null: there is none, or MPI does not define the operation for the type
  std::size_t size = 0;            ///< of an element
};
KnownChange find_change(MPI_Op op, MPI_Datatype type);
inline thread_local constinit Recent<KnownChange> t_changes;
/// The step that this thread has learnt lately, until it learns another; null: none.
inline const KnownChange* known_change(MPI_Op op, MPI_Datatype type) {
  const KnownChange& known = t_changes.place_of(op, type);
  return known.op == op && known.type == type && known.steps != nullptr ? &known : nullptr;
}
inline void learn_change(MPI_Op op, MPI_Datatype type) {
  KnownChange& known = t_changes.place_of(op, type);
  if (known.op != op || known.type != type) known = find_change(op, type);
}

}  // namespace sluice::mpi_rma
