// SPDX-License-Identifier: Apache-2.0
// MPI's calls that access the memory of other ranks.
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

int MPI_Put(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
            MPI_Datatype there, MPI_Win win) {
  if (put_directly(win, origin, count, type, {there_count, there, rank, at})) return MPI_SUCCESS;
  return go_long_way([=] {
    if (const auto done = put({win}, here(origin, count, type), {rank, at, there_count, there})) return *done;
    SLUICE_RMA_BEHIND(Put, origin, count, type, rank, at, there_count, there, win);
  });
}

int MPI_Get(void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count, MPI_Datatype there,
            MPI_Win win) {
  if (get_directly(win, origin, count, type, {there_count, there, rank, at})) return MPI_SUCCESS;
  return go_long_way([=] {
    if (const auto done = get({win}, here(origin, count, type), {rank, at, there_count, there})) return *done;
    SLUICE_RMA_BEHIND(Get, origin, count, type, rank, at, there_count, there, win);
  });
}

int MPI_Accumulate(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                   MPI_Datatype there, MPI_Op op, MPI_Win win) {
  const bool alike = type == there && count == there_count;
  if (alike && change_directly(win, origin, nullptr, {count, type, rank, at}, op)) return MPI_SUCCESS;
  return go_long_way([=] {
    const There to{rank, at, there_count, there};
    if (const auto done = change({win}, here(origin, count, type), nullptr, to, op)) return *done;
    SLUICE_RMA_BEHIND(Accumulate, origin, count, type, rank, at, there_count, there, op, win);
  });
}

int MPI_Get_accumulate(const void* origin, int count, MPI_Datatype type, void* result, int result_count,
                       MPI_Datatype result_type, int rank, MPI_Aint at, int there_count, MPI_Datatype there, MPI_Op op,
                       MPI_Win win) {
  const bool alike = result_type == there && result_count == there_count &&
                     (op == MPI_NO_OP || (type == there && count == there_count));
  if (alike && change_directly(win, origin, result, {there_count, there, rank, at}, op)) return MPI_SUCCESS;
  return go_long_way([=] {
    const Here before = here(result, result_count, result_type);
    const There to{rank, at, there_count, there};
    if (const auto done = change({win}, here(origin, count, type), &before, to, op)) return *done;
    SLUICE_RMA_BEHIND(Get_accumulate, origin, count, type, result, result_count, result_type, rank, at, there_count,
                      there, op, win);
  });
}

int MPI_Rput(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
             MPI_Datatype there, MPI_Win win, MPI_Request* request) {
  if (const auto done = put({win, request}, here(origin, count, type), {rank, at, there_count, there})) return *done;
  SLUICE_RMA_BEHIND(Rput, origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Rget(void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count, MPI_Datatype there,
             MPI_Win win, MPI_Request* request) {
  if (const auto done = get({win, request}, here(origin, count, type), {rank, at, there_count, there})) return *done;
  SLUICE_RMA_BEHIND(Rget, origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Raccumulate(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                    MPI_Datatype there, MPI_Op op, MPI_Win win, MPI_Request* request) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request}, here(origin, count, type), nullptr, to, op)) return *done;
  SLUICE_RMA_BEHIND(Raccumulate, origin, count, type, rank, at, there_count, there, op, win, request);
}

int MPI_Rget_accumulate(const void* origin, int count, MPI_Datatype type, void* result, int result_count,
                        MPI_Datatype result_type, int rank, MPI_Aint at, int there_count, MPI_Datatype there, MPI_Op op,
                        MPI_Win win, MPI_Request* request) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request}, here(origin, count, type), &before, to, op)) return *done;
  SLUICE_RMA_BEHIND(Rget_accumulate, origin, count, type, result, result_count, result_type, rank, at, there_count,
                    there, op, win, request);
}

int MPI_Fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint at, MPI_Op op,
                     MPI_Win win) {
  if (change_directly(win, origin, result, {1, type, rank, at}, op)) return MPI_SUCCESS;
  return go_long_way([=] {
    const Here before = here(result, 1, type);
    if (const auto done = change({win}, here(origin, 1, type), &before, {rank, at, 1, type}, op)) return *done;
    SLUICE_RMA_BEHIND(Fetch_and_op, origin, result, type, rank, at, op, win);
  });
}

int MPI_Compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                         MPI_Aint at, MPI_Win win) {
  if (compare_and_swap_directly(win, origin, compare, result, {1, type, rank, at})) return MPI_SUCCESS;
  return go_long_way([=] {
    if (const auto done = compare_and_swap({win}, {origin, compare, result}, {rank, at, 1, type})) return *done;
    SLUICE_RMA_BEHIND(Compare_and_swap, origin, compare, result, type, rank, at, win);
  });
}

#if MPI_VERSION >= 4
int MPI_Put_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
              MPI_Datatype there, MPI_Win win) {
  if (put_directly(win, origin, count, type, {there_count, there, rank, at})) return MPI_SUCCESS;
  return go_long_way([=] {
    if (const auto done = put({win}, here(origin, count, type), {rank, at, there_count, there})) return *done;
    SLUICE_RMA_BEHIND(Put_c, origin, count, type, rank, at, there_count, there, win);
  });
}

int MPI_Get_c(void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
              MPI_Datatype there, MPI_Win win) {
  if (get_directly(win, origin, count, type, {there_count, there, rank, at})) return MPI_SUCCESS;
  return go_long_way([=] {
    if (const auto done = get({win}, here(origin, count, type), {rank, at, there_count, there})) return *done;
    SLUICE_RMA_BEHIND(Get_c, origin, count, type, rank, at, there_count, there, win);
  });
}

int MPI_Accumulate_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at,
                     MPI_Count there_count, MPI_Datatype there, MPI_Op op, MPI_Win win) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win}, here(origin, count, type), nullptr, to, op)) return *done;
  SLUICE_RMA_BEHIND(Accumulate_c, origin, count, type, rank, at, there_count, there, op, win);
}

int MPI_Get_accumulate_c(const void* origin, MPI_Count count, MPI_Datatype type, void* result, MPI_Count result_count,
                         MPI_Datatype result_type, int rank, MPI_Aint at, MPI_Count there_count, MPI_Datatype there,
                         MPI_Op op, MPI_Win win) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win}, here(origin, count, type), &before, to, op)) return *done;
  SLUICE_RMA_BEHIND(Get_accumulate_c, origin, count, type, result, result_count, result_type, rank, at, there_count,
                    there, op, win);
}

int MPI_Rput_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
               MPI_Datatype there, MPI_Win win, MPI_Request* request) {
  if (const auto done = put({win, request}, here(origin, count, type), {rank, at, there_count, there})) return *done;
  SLUICE_RMA_BEHIND(Rput_c, origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Rget_c(void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
               MPI_Datatype there, MPI_Win win, MPI_Request* request) {
  if (const auto done = get({win, request}, here(origin, count, type), {rank, at, there_count, there})) return *done;
  SLUICE_RMA_BEHIND(Rget_c, origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Raccumulate_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at,
                      MPI_Count there_count, MPI_Datatype there, MPI_Op op, MPI_Win win, MPI_Request* request) {
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request}, here(origin, count, type), nullptr, to, op)) return *done;
  SLUICE_RMA_BEHIND(Raccumulate_c, origin, count, type, rank, at, there_count, there, op, win, request);
}

int MPI_Rget_accumulate_c(const void* origin, MPI_Count count, MPI_Datatype type, void* result, MPI_Count result_count,
                          MPI_Datatype result_type, int rank, MPI_Aint at, MPI_Count there_count, MPI_Datatype there,
                          MPI_Op op, MPI_Win win, MPI_Request* request) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change({win, request}, here(origin, count, type), &before, to, op)) return *done;
  SLUICE_RMA_BEHIND(Rget_accumulate_c, origin, count, type, result, result_count, result_type, rank, at, there_count,
                    there, op, win, request);
}

#endif

}  // extern "C"
#pragma GCC visibility pop
