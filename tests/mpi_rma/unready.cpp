// SPDX-License-Identifier: Apache-2.0
// Windows that one rank cannot make as Sluice's: a function of MPI's that the library needs fails there.
#include <dlfcn.h>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

bool g_fails = false;

}  // namespace

/// Stands before MPI's own.
extern "C" int PMPI_Win_create(void* base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win* window) {
  using Function = int(void*, MPI_Aint, int, MPI_Info, MPI_Comm, MPI_Win*);
  static auto* const next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "PMPI_Win_create"));
  if (g_fails && comm == MPI_COMM_SELF) return MPI_ERR_OTHER;
  return next(base, bytes, unit, info, comm, window);
}

void run_unready() {
  using namespace checks;
  int memory = -1;
  for (int i = 0; i < 20; ++i) {
    g_fails = world_rank() == 1 && i % 2 == 0;
    MPI_Win window = MPI_WIN_NULL;
    MPI_Win_create(&memory, sizeof memory, sizeof memory, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
    MPI_Win_free(&window);
    expect(window == MPI_WIN_NULL, "a window was not freed");
  }
}
