// SPDX-License-Identifier: Apache-2.0
// MPI's calls that access the memory of other ranks.
#include <sluice/mpi_rma.h>

#include "rma/mpi/accesses.hpp"
#include "rma/mpi/calls.hpp"
#include "rma/mpi/direct.hpp"

using namespace sluice::mpi_rma;

namespace {

/// Not inlined, so that the short way needs no register that is saved.
template <class Work>
[[gnu::noinline]] int go_long_way(Work work) {
  return work();
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int MPI_Fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint at, MPI_Op op,
                     MPI_Win win) {
  if (change_directly(win, origin, result, {1, type, rank, at}, op)) return MPI_SUCCESS;
  return go_long_way([=] {
    const Here before = here(result, 1, type);
    if (const auto done = change({win}, here(origin, 1, type), &before, {rank, at, 1, type}, op)) return *done;
    SLUICE_RMA_BEHIND(Fetch_and_op, origin, result, type, rank_at_mpi(win, rank), at, op, win);
  });
}

int MPI_Compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                         MPI_Aint at, MPI_Win win) {
  if (compare_and_swap_directly(win, origin, compare, result, {1, type, rank, at})) return MPI_SUCCESS;
  return go_long_way([=] {
    if (const auto done = compare_and_swap({win}, {origin, compare, result}, {rank, at, 1, type})) return *done;
    SLUICE_RMA_BEHIND(Compare_and_swap, origin, compare, result, type, rank_at_mpi(win, rank), at, win);
  });
}

#define SLUICE_RMA_COUNT int
#define SLUICE_RMA_FORM(name) name
#include "rma/mpi/calls_by_count.hpp"

#if MPI_VERSION >= 4
#define SLUICE_RMA_COUNT MPI_Count
#define SLUICE_RMA_FORM(name) name##_c
#include "rma/mpi/calls_by_count.hpp"
#endif

}  // extern "C"
#pragma GCC visibility pop
