// SPDX-License-Identifier: Apache-2.0
// Accumulates by atomics of the processor, where all ranks map the memory of the window.
#pragma once

#include "rma/mpi/access.hpp"
#include "rma/mpi/types.hpp"

#include <cstddef>
#include <cstdint>

namespace sluice::mpi_rma {

/// True if every element lies inside of a word. It depends on the window, the type and where the elements are, and on
/// nothing else, so that all accumulates to one place with one type go one way.
bool by_word(RmaWindow& window, const There& there, const Flat& flat, std::int64_t begin);

/// An accumulate that is `by_word`.
struct WordChange {
  const There& there;
  const Flat& flat;
  std::int64_t begin;
  MPI_Op op;
  const std::byte* operands;  ///< all elements, one after another
  std::byte* before;          ///< for the elements before; null: they are not wanted
};
void change_by_word(RmaWindow& window, const WordChange& change);

struct Bytes {
  std::uint64_t offset;
  std::size_t size;
};
void compare_swap_by_word(RmaWindow& window, const There& there, Bytes element, const void* desired,
                          const void* expected, void* result);

}  // namespace sluice::mpi_rma
