// SPDX-License-Identifier: Apache-2.0
// Cases that no program of MPI can bring about: functions of MPI's that the library calls fail here, or do more.
#include <dlfcn.h>

#include <array>
#include <functional>
#include <utility>

#include "rma/mpi/meeting.hpp"
#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

bool g_fails = false;
bool g_misses = false;
std::function<void()> g_after_free;  // once
MPI_Datatype g_unknown = MPI_DATATYPE_NULL;
int g_frees_of_unknown = 0;

}  // namespace

// These stand before MPI's own.

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

extern "C" int PMPI_Win_free(MPI_Win* window) {
  static auto* const next = reinterpret_cast<int (*)(MPI_Win*)>(dlsym(RTLD_NEXT, "PMPI_Win_free"));
  const int result = next(window);
  if (const auto work = std::exchange(g_after_free, nullptr)) work();
  return result;
}

#if MPI_VERSION >= 4
extern "C" int PMPI_Type_get_envelope_c(MPI_Datatype type, MPI_Count* ints, MPI_Count* addresses, MPI_Count* counts,
                                        MPI_Count* types, int* combiner) {
  using Function = int(MPI_Datatype, MPI_Count*, MPI_Count*, MPI_Count*, MPI_Count*, int*);
  static auto* const next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "PMPI_Type_get_envelope_c"));
  const int result = next(type, ints, addresses, counts, types, combiner);
#else
extern "C" int PMPI_Type_get_envelope(MPI_Datatype type, int* ints, int* addresses, int* types, int* combiner) {
  using Function = int(MPI_Datatype, int*, int*, int*, int*);
  static auto* const next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "PMPI_Type_get_envelope"));
  const int result = next(type, ints, addresses, types, combiner);
#endif
  if (type == g_unknown) *combiner = 12345;
  return result;
}

extern "C" int PMPI_Type_free(MPI_Datatype* type) {
  static auto* const next = reinterpret_cast<int (*)(MPI_Datatype*)>(dlsym(RTLD_NEXT, "PMPI_Type_free"));
  if (*type == g_unknown) ++g_frees_of_unknown;
  return next(type);
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

namespace {

MPI_Win window_of(int& memory, MPI_Comm comm) {
  MPI_Win made = MPI_WIN_NULL;
  MPI_Win_create(&memory, sizeof memory, sizeof memory, MPI_INFO_NULL, comm, &made);
  return made;
}

void check_put(MPI_Win window, const int& memory, int value) {
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
  MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
  MPI_Win_unlock(0, window);
  checks::expect_equal(memory, value, "what was put");
}

}  // namespace

/// MPI gives the handle of a window to another thread before MPI_Win_free, which has freed it, has returned.
void run_reused_handles() {
  using namespace checks;
  MPI_Comm alone = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_SELF, &alone);
  for (const bool by_mpi : {true, false}) {
    int before = -1;
    int after = -1;
    MPI_Win first = window_of(before, alone);
    check_put(first, before, 1);
    const MPI_Win handle = first;
    MPI_Win second = MPI_WIN_NULL;
    g_after_free = [&] {
      g_fails = by_mpi;
      second = window_of(after, alone);
      g_fails = false;
      expect(second == handle, "MPI has given another handle");
      check_put(second, after, 2);
    };
    MPI_Win_free(&first);
    check_put(second, after, 3);
    expect_equal(before, 1, "the memory of the window that was freed");
    MPI_Win_free(&second);
  }
  MPI_Comm_free(&alone);
}

/// A predefined type that has no name, of a later MPI, is refused, and is not freed.
void run_unknown_types() {
  using namespace checks;
  std::array<int, 4> memory{};
  const std::array<int, 4> values{1, 2, 3, 4};
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_create(memory.data(), sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  MPI_Type_contiguous(2, MPI_INT, &g_unknown);
  MPI_Datatype both = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, g_unknown, &both);
  MPI_Type_commit(&both);
  MPI_Type_commit(&g_unknown);
  MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
  for (const MPI_Datatype type : {g_unknown, both}) {
    const int code = MPI_Put(values.data(), 1, type, 0, 0, 1, type, window);
    expect_equal(class_of(code), MPI_ERR_TYPE, "a type that is not known");
  }
  MPI_Win_unlock(0, window);
  expect_equal(g_frees_of_unknown, 0, "times that it was freed");
  MPI_Win_free(&window);
  expect_equal(memory[0], 0, "memory that errors have left as it was");
  MPI_Type_free(&both);
}
