// SPDX-License-Identifier: Apache-2.0
// MPI's calls that access the memory of other ranks.
#include <optional>

#include "rma/mpi/access.hpp"
#include "rma/mpi/calls.hpp"

namespace sluice::mpi_rma {
namespace {

bool valid(const Here& here) { return here.count >= 0 && here.type != MPI_DATATYPE_NULL; }

/// False for arguments that MPI refuses: the call then goes to MPI, which calls the error handler.
bool valid(const RmaWindow& window, const There& there) {
  const bool rank = there.rank == MPI_PROC_NULL || (there.rank >= 0 && there.rank < window.size);
  return rank && there.count >= 0 && there.type != MPI_DATATYPE_NULL && there.displacement >= 0;
}

bool predefined(MPI_Op op) {
  for (const MPI_Op known : {MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR,
                             MPI_BXOR, MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP})
    if (op == known) return true;
  return false;
}

Here here(const void* address, MPI_Count count, MPI_Datatype type) { return {const_cast<void*>(address), count, type}; }

/// Runs `work` for an access to a rank, unless that is MPI_PROC_NULL, and completes it here if there is a request.
template <class Work>
int access(RmaWindow& served, int rank, MPI_Request* request, Work work) {
  const int result = serve(served, [&](RmaWindow& window, Epochs::Lock& lock) {
    if (rank == MPI_PROC_NULL) return;
    window.epochs->check_access(rank);
    work(window, lock);
    if (request != nullptr) window.areas->drain(rank);
  });
  return result == MPI_SUCCESS && request != nullptr ? finished_request(request) : result;
}

// Each returns nothing if the call has to go to MPI.

std::optional<int> put(MPI_Win win, const Here& from, const There& to, MPI_Request* request) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr || !valid(from) || !valid(*found, to)) return std::nullopt;
  return access(*found, to.rank, request, [&](RmaWindow& window, Epochs::Lock&) { put(window, from, to); });
}

std::optional<int> get(MPI_Win win, const Here& to, const There& from, MPI_Request* request) {
  RmaWindow* const found = find_window(win);
  if (found == nullptr || !valid(to) || !valid(*found, from)) return std::nullopt;
  return access(*found, from.rank, request, [&](RmaWindow& window, Epochs::Lock&) { get(window, to, from); });
}

/// `result`: null if the elements before are not wanted.
std::optional<int> change(MPI_Win win, const Here& operands, const Here* result, const There& to, MPI_Op op,
                          MPI_Request* request) {
  RmaWindow* const found = find_window(win);
  const bool fits = (valid(operands) || op == MPI_NO_OP) && (result == nullptr || valid(*result)) && predefined(op);
  if (found == nullptr || !fits || !valid(*found, to)) return std::nullopt;
  return access(*found, to.rank, request, [&](RmaWindow& window, Epochs::Lock& lock) {
    accumulate(window, lock, operands, result == nullptr ? Here{} : *result, to, op);
  });
}

}  // namespace
}  // namespace sluice::mpi_rma

using namespace sluice::mpi_rma;

#pragma GCC visibility push(default)
extern "C" {

int MPI_Put(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
            MPI_Datatype there, MPI_Win win) {
  if (const auto done = put(win, here(origin, count, type), {rank, at, there_count, there}, nullptr)) return *done;
  SLUICE_RMA_BEHIND(Put, origin, count, type, rank, at, there_count, there, win);
}

int MPI_Get(void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count, MPI_Datatype there,
            MPI_Win win) {
  if (const auto done = get(win, here(origin, count, type), {rank, at, there_count, there}, nullptr)) return *done;
  SLUICE_RMA_BEHIND(Get, origin, count, type, rank, at, there_count, there, win);
}

int MPI_Accumulate(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                   MPI_Datatype there, MPI_Op op, MPI_Win win) {
  const There to{rank, at, there_count, there};
  if (const auto done = change(win, here(origin, count, type), nullptr, to, op, nullptr)) return *done;
  SLUICE_RMA_BEHIND(Accumulate, origin, count, type, rank, at, there_count, there, op, win);
}

int MPI_Get_accumulate(const void* origin, int count, MPI_Datatype type, void* result, int result_count,
                       MPI_Datatype result_type, int rank, MPI_Aint at, int there_count, MPI_Datatype there, MPI_Op op,
                       MPI_Win win) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change(win, here(origin, count, type), &before, to, op, nullptr)) return *done;
  SLUICE_RMA_BEHIND(Get_accumulate, origin, count, type, result, result_count, result_type, rank, at, there_count,
                    there, op, win);
}

int MPI_Rput(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
             MPI_Datatype there, MPI_Win win, MPI_Request* request) {
  if (const auto done = put(win, here(origin, count, type), {rank, at, there_count, there}, request)) return *done;
  SLUICE_RMA_BEHIND(Rput, origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Rget(void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count, MPI_Datatype there,
             MPI_Win win, MPI_Request* request) {
  if (const auto done = get(win, here(origin, count, type), {rank, at, there_count, there}, request)) return *done;
  SLUICE_RMA_BEHIND(Rget, origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Raccumulate(const void* origin, int count, MPI_Datatype type, int rank, MPI_Aint at, int there_count,
                    MPI_Datatype there, MPI_Op op, MPI_Win win, MPI_Request* request) {
  const There to{rank, at, there_count, there};
  if (const auto done = change(win, here(origin, count, type), nullptr, to, op, request)) return *done;
  SLUICE_RMA_BEHIND(Raccumulate, origin, count, type, rank, at, there_count, there, op, win, request);
}

int MPI_Rget_accumulate(const void* origin, int count, MPI_Datatype type, void* result, int result_count,
                        MPI_Datatype result_type, int rank, MPI_Aint at, int there_count, MPI_Datatype there, MPI_Op op,
                        MPI_Win win, MPI_Request* request) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change(win, here(origin, count, type), &before, to, op, request)) return *done;
  SLUICE_RMA_BEHIND(Rget_accumulate, origin, count, type, result, result_count, result_type, rank, at, there_count,
                    there, op, win, request);
}

int MPI_Fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint at, MPI_Op op,
                     MPI_Win win) {
  const Here before = here(result, 1, type);
  if (const auto done = change(win, here(origin, 1, type), &before, {rank, at, 1, type}, op, nullptr)) return *done;
  SLUICE_RMA_BEHIND(Fetch_and_op, origin, result, type, rank, at, op, win);
}

int MPI_Compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type, int rank,
                         MPI_Aint at, MPI_Win win) {
  RmaWindow* const found = find_window(win);
  const There to{rank, at, 1, type};
  if (found == nullptr || !valid(*found, to))
    SLUICE_RMA_BEHIND(Compare_and_swap, origin, compare, result, type, rank, at, win);
  return access(*found, rank, nullptr, [&](RmaWindow& window, Epochs::Lock& lock) {
    compare_and_swap(window, lock, origin, compare, result, to);
  });
}

#if MPI_VERSION >= 4
int MPI_Put_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
              MPI_Datatype there, MPI_Win win) {
  if (const auto done = put(win, here(origin, count, type), {rank, at, there_count, there}, nullptr)) return *done;
  SLUICE_RMA_BEHIND(Put_c, origin, count, type, rank, at, there_count, there, win);
}

int MPI_Get_c(void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
              MPI_Datatype there, MPI_Win win) {
  if (const auto done = get(win, here(origin, count, type), {rank, at, there_count, there}, nullptr)) return *done;
  SLUICE_RMA_BEHIND(Get_c, origin, count, type, rank, at, there_count, there, win);
}

int MPI_Accumulate_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at,
                     MPI_Count there_count, MPI_Datatype there, MPI_Op op, MPI_Win win) {
  const There to{rank, at, there_count, there};
  if (const auto done = change(win, here(origin, count, type), nullptr, to, op, nullptr)) return *done;
  SLUICE_RMA_BEHIND(Accumulate_c, origin, count, type, rank, at, there_count, there, op, win);
}

int MPI_Get_accumulate_c(const void* origin, MPI_Count count, MPI_Datatype type, void* result, MPI_Count result_count,
                         MPI_Datatype result_type, int rank, MPI_Aint at, MPI_Count there_count, MPI_Datatype there,
                         MPI_Op op, MPI_Win win) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change(win, here(origin, count, type), &before, to, op, nullptr)) return *done;
  SLUICE_RMA_BEHIND(Get_accumulate_c, origin, count, type, result, result_count, result_type, rank, at, there_count,
                    there, op, win);
}

int MPI_Rput_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
               MPI_Datatype there, MPI_Win win, MPI_Request* request) {
  if (const auto done = put(win, here(origin, count, type), {rank, at, there_count, there}, request)) return *done;
  SLUICE_RMA_BEHIND(Rput_c, origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Rget_c(void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at, MPI_Count there_count,
               MPI_Datatype there, MPI_Win win, MPI_Request* request) {
  if (const auto done = get(win, here(origin, count, type), {rank, at, there_count, there}, request)) return *done;
  SLUICE_RMA_BEHIND(Rget_c, origin, count, type, rank, at, there_count, there, win, request);
}

int MPI_Raccumulate_c(const void* origin, MPI_Count count, MPI_Datatype type, int rank, MPI_Aint at,
                      MPI_Count there_count, MPI_Datatype there, MPI_Op op, MPI_Win win, MPI_Request* request) {
  const There to{rank, at, there_count, there};
  if (const auto done = change(win, here(origin, count, type), nullptr, to, op, request)) return *done;
  SLUICE_RMA_BEHIND(Raccumulate_c, origin, count, type, rank, at, there_count, there, op, win, request);
}

int MPI_Rget_accumulate_c(const void* origin, MPI_Count count, MPI_Datatype type, void* result, MPI_Count result_count,
                          MPI_Datatype result_type, int rank, MPI_Aint at, MPI_Count there_count, MPI_Datatype there,
                          MPI_Op op, MPI_Win win, MPI_Request* request) {
  const Here before = here(result, result_count, result_type);
  const There to{rank, at, there_count, there};
  if (const auto done = change(win, here(origin, count, type), &before, to, op, request)) return *done;
  SLUICE_RMA_BEHIND(Rget_accumulate_c, origin, count, type, result, result_count, result_type, rank, at, there_count,
                    there, op, win, request);
}

#endif

}  // extern "C"
#pragma GCC visibility pop
