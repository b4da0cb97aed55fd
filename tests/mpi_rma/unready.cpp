// SPDX-License-Identifier: Apache-2.0
// Windows that one rank cannot make as Sluice's: a function of MPI's that the library needs fails there.
#include <dlfcn.h>

#include <utility>

#include "rma/mpi/meeting.hpp"
#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

bool g_fails = false;
bool g_misses = false;

}  // namespace

// They stand before MPI's own.

/// Ranks tell each other by it where their words are.
extern "C" int PMPI_Allgather(const void* from, int count, MPI_Datatype type, void* to, int each, MPI_Datatype received,
                              MPI_Comm comm) {
  using Function = int(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm);
  static auto* const next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "PMPI_Allgather"));
  const int result = next(from, count, type, to, each, received, comm);
  if (std::exchange(g_misses, false)) static_cast<sluice::mpi_rma::Member*>(to)->place.first = 1 << 30;
  return result;
}

extern "C" int PMPI_Win_create(void* base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win* window) {
  using Function = int(void*, MPI_Aint, int, MPI_Info, MPI_Comm, MPI_Win*);
  static auto* const next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "PMPI_Win_create"));
  if (g_fails && comm == MPI_COMM_SELF) return MPI_ERR_OTHER;
  return next(base, bytes, unit, info, comm, window);
}

/// One rank looks for words of another one behind the end of its window.
void run_unreached() {
  using namespace checks;
  int memory = 0;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  g_misses = world_rank() == 1;
  MPI_Win_create(&memory, sizeof memory, sizeof memory, MPI_INFO_NULL, comm, &window);
  expect(!g_misses, "ranks tell each other where their words are");
  MPI_Win_fence(0, window);
  MPI_Win_free(&window);
  MPI_Comm_free(&comm);
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
