// SPDX-License-Identifier: Apache-2.0
// Calls of Fortran's module mpi_f08. MPICH's module calls MPI_Put and what else has a buffer, but PMPI_Win_fence and
// all calls without one, which pass this library by: a fence would then wait for no rank. So these definitions stand
// before those of MPICH's libmpifort. `use mpi` and mpif.h need none, since their calls are MPI's in C.
#include <mpi.h>

#ifdef MPICH_VERSION  // the names, and the handles of C in Fortran, are MPICH's

namespace sluice::mpi_rma {
namespace {

static_assert(sizeof(MPI_Win) == sizeof(MPI_Fint));

/// `ierror`: null if the program has left the argument out.
void set(MPI_Fint* ierror, int result) {
  if (ierror != nullptr) *ierror = result;
}

}  // namespace
}  // namespace sluice::mpi_rma

/// Defines a call by that of C.
#define SLUICE_F08(name, call, ...)                                                                       \
  void mpi_win_##name##_(__VA_ARGS__, MPI_Fint* ierror);                                                  \
  void mpi_win_##name##_(__VA_ARGS__, MPI_Fint* ierror) { sluice::mpi_rma::set(ierror, MPI_Win_##call); } \
  static_assert(true)  // takes the semicolon

#pragma GCC visibility push(default)
extern "C" {

using Number = const MPI_Fint*;
using Win = const MPI_Win*;

SLUICE_F08(fence_f08, fence(*assertion, *win), Number assertion, Win win);
SLUICE_F08(post_f08, post(*group, *assertion, *win), const MPI_Group* group, Number assertion, Win win);
SLUICE_F08(start_f08, start(*group, *assertion, *win), const MPI_Group* group, Number assertion, Win win);
SLUICE_F08(complete_f08, complete(*win), Win win);
SLUICE_F08(wait_f08, wait(*win), Win win);
SLUICE_F08(test_f08, test(*win, flag), Win win, MPI_Fint* flag);  // gfortran's .true. is 1
SLUICE_F08(lock_f08, lock(*type, *rank, *assertion, *win), Number type, Number rank, Number assertion, Win win);
SLUICE_F08(unlock_f08, unlock(*rank, *win), Number rank, Win win);
SLUICE_F08(lock_all_f08, lock_all(*assertion, *win), Number assertion, Win win);
SLUICE_F08(unlock_all_f08, unlock_all(*win), Win win);
SLUICE_F08(flush_f08, flush(*rank, *win), Number rank, Win win);
SLUICE_F08(flush_local_f08, flush_local(*rank, *win), Number rank, Win win);
SLUICE_F08(flush_all_f08, flush_all(*win), Win win);
SLUICE_F08(flush_local_all_f08, flush_local_all(*win), Win win);
SLUICE_F08(sync_f08, sync(*win), Win win);

SLUICE_F08(allocate_f08, allocate(*bytes, *unit, *info, *comm, base, win), const MPI_Aint* bytes, Number unit,
           const MPI_Info* info, const MPI_Comm* comm, void** base, MPI_Win* win);
SLUICE_F08(allocate_shared_f08, allocate_shared(*bytes, *unit, *info, *comm, base, win), const MPI_Aint* bytes,
           Number unit, const MPI_Info* info, const MPI_Comm* comm, void** base, MPI_Win* win);
SLUICE_F08(create_dynamic_f08, create_dynamic(*info, *comm, win), const MPI_Info* info, const MPI_Comm* comm,
           MPI_Win* win);
SLUICE_F08(free_f08, free(win), MPI_Win* win);
SLUICE_F08(get_group_f08, get_group(*win, group), Win win, MPI_Group* group);
SLUICE_F08(get_info_f08, get_info(*win, info), Win win, MPI_Info* info);
SLUICE_F08(shared_query_f08, shared_query(*win, *rank, bytes, unit, base), Win win, Number rank, MPI_Aint* bytes,
           MPI_Fint* unit, void** base);
#if MPI_VERSION >= 4
SLUICE_F08(allocate_f08_large, allocate_c(*bytes, *unit, *info, *comm, base, win), const MPI_Aint* bytes,
           const MPI_Aint* unit, const MPI_Info* info, const MPI_Comm* comm, void** base, MPI_Win* win);
SLUICE_F08(allocate_shared_f08_large, allocate_shared_c(*bytes, *unit, *info, *comm, base, win), const MPI_Aint* bytes,
           const MPI_Aint* unit, const MPI_Info* info, const MPI_Comm* comm, void** base, MPI_Win* win);
SLUICE_F08(shared_query_f08_large, shared_query_c(*win, *rank, bytes, unit, base), Win win, Number rank,
           MPI_Aint* bytes, MPI_Aint* unit, void** base);
#endif

}  // extern "C"
#pragma GCC visibility pop

#endif
