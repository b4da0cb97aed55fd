// SPDX-License-Identifier: Apache-2.0
// MPI's operations as loops over elements, for a rank that alone changes them.
#pragma once

#include "rma/mpi/recent.hpp"
#include "rma/mpi/types.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstring>

namespace sluice::mpi_rma {

/// Changes the elements at `there` by as many operands; `bytes` of each, which may begin at any address. `before`: for
/// the elements before, which may be where the operands are; null: they are not wanted.
using ChangeElements = void (*)(std::byte* there, const std::byte* operands, std::byte* before, std::size_t bytes);

/// Null: MPI's own reduction has to change elements of the type, or MPI does not define the operation for them.
ChangeElements change_of(MPI_Op op, const Basic& basic);

/// Result of `change_of` for an operation on a predefined type.
struct KnownChange {
  MPI_Op op = MPI_OP_NULL;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  ChangeElements change = nullptr;
  std::size_t size = 0;  ///< of an element
};
KnownChange find_change(MPI_Op op, MPI_Datatype type);
inline thread_local constinit Recent<KnownChange> t_changes;
/// The change that this thread has learnt lately, until it learns another; null: none.
inline const KnownChange* known_change(MPI_Op op, MPI_Datatype type) {
  const KnownChange& known = t_changes.place_of(op, type);
  return known.op == op && known.type == type && known.change != nullptr ? &known : nullptr;
}
inline void learn_change(MPI_Op op, MPI_Datatype type) {
  KnownChange& known = t_changes.place_of(op, type);
  if (known.op != op || known.type != type) known = find_change(op, type);
}

/// An element of `size` bytes becomes `desired` if it is `expected`. `result`: for the element before.
[[gnu::always_inline]] inline void swap_if_equal(std::byte* there, const void* desired, const void* expected,
                                                 void* result, std::size_t size) {
  const bool equal = std::memcmp(there, expected, size) == 0;
  std::memcpy(result, there, size);
  if (equal) std::memcpy(there, desired, size);
}

}  // namespace sluice::mpi_rma
