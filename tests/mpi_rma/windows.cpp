// SPDX-License-Identifier: Apache-2.0
// Attributes and other properties of windows, and errors.
#include <sys/resource.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "tests/kernel_copies.hpp"
#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

int g_dropped = 0;
int size_of_group(MPI_Win window) {
  MPI_Group group = MPI_GROUP_NULL;
  int size = 0;
  MPI_Win_get_group(window, &group);
  MPI_Group_size(group, &size);
  MPI_Group_free(&group);
  return size;
}

int drop(MPI_Win window, int, void* value, void*) {
  g_dropped += *static_cast<int*>(value);
  expect_equal(size_of_group(window), world_size(), "the size of the group while the window is freed");
  expect_equal(attribute<MPI_Aint>(window, MPI_WIN_SIZE), 80, "MPI_WIN_SIZE while the window is freed");
  return MPI_SUCCESS;
}

int g_handled = 0;
void handle(MPI_Win*, int* code, ...) { g_handled = class_of(*code); }

}  // namespace

void run_facts() {
  int key = MPI_KEYVAL_INVALID;
  int kept = 5;
  {
    Shared<double> shared(10);
    expect_equal(attribute<MPI_Aint>(shared.window, MPI_WIN_SIZE), 80, "MPI_WIN_SIZE");
    expect_equal(attribute<int>(shared.window, MPI_WIN_DISP_UNIT), 8, "MPI_WIN_DISP_UNIT");
    expect_equal(attribute<int>(shared.window, MPI_WIN_CREATE_FLAVOR), MPI_WIN_FLAVOR_ALLOCATE, "the flavor");
    void* base = nullptr;
    int flag = 0;
    MPI_Win_get_attr(shared.window, MPI_WIN_BASE, static_cast<void*>(&base), &flag);
    expect(flag != 0 && base == shared.memory, "MPI_WIN_BASE");
    expect_equal(size_of_group(shared.window), world_size(), "the size of the group");
    int size = 0;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Win_set_name(shared.window, "of mine");
    MPI_Win_get_name(shared.window, name, &size);
    expect(std::strcmp(name, "of mine") == 0, "the name");
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, drop, &key, nullptr);
    MPI_Win_set_attr(shared.window, key, &kept);
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Win_create_errhandler(handle, &handler);
    MPI_Win_set_errhandler(shared.window, handler);
    MPI_Win_unlock(0, shared.window);
    expect_equal(g_handled, MPI_ERR_RMA_SYNC, "the class that an error handler got");
    MPI_Errhandler_free(&handler);
  }
  expect_equal(g_dropped, 5, "the attribute of a freed window");
  MPI_Win_free_keyval(&key);
}

namespace {

/// A part of a window of run_sizes: ranks load from their own alone.
template <class Unit>
void check_part(MPI_Win window, char* base, int (*query)(MPI_Win, int, MPI_Aint*, Unit*, void*)) {
  for (int rank = 0; rank < world_size(); ++rank) {
    MPI_Aint bytes = -1;
    Unit unit = 0;
    void* found = nullptr;
    query(window, rank, &bytes, &unit, static_cast<void*>(&found));
    const bool loads = rank == world_rank() && base != nullptr;
    expect_equal(bytes, loads ? 100 : 0, "the bytes of a rank");
    expect_equal(unit, 1 + rank, "the unit of a rank");
    expect(found == (loads ? base : nullptr), "the place of a rank's bytes");
  }
}

}  // namespace

/// Which part MPI_PROC_NULL names, where rank 0 has no memory.
void check_first_part() {
  std::vector<char> memory(20);
  const int bytes = world_rank() == 0 ? 0 : 10 + world_rank();
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_create(bytes == 0 ? nullptr : memory.data(), bytes, 1 + world_rank(), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Aint found = -1;
  int unit = 0;
  void* base = nullptr;
  MPI_Win_shared_query(window, MPI_PROC_NULL, &found, &unit, static_cast<void*>(&base));
  expect_equal(unit, 2, "the unit of the lowest rank with memory");
  expect_equal(found, world_rank() == 1 ? 11 : 0, "the bytes of the lowest rank with memory");
  MPI_Win_free(&window);
}

void run_sizes() {
  check_first_part();
  // Units and sizes that differ, memory that begins anywhere, and ranks without any.
  const int unit = 1 + world_rank();
  std::vector<char> memory(101);
  char* const base = world_rank() == world_size() - 1 ? nullptr : memory.data() + unit;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_create(base, base == nullptr ? 0 : 100, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  check_part<int>(window, base, &MPI_Win_shared_query);
#if MPI_VERSION >= 4
  check_part<MPI_Aint>(window, base, &MPI_Win_shared_query_c);
#endif
  MPI_Win_fence(0, window);
  if (world_rank() == 0) {
    for (int target = 0; target + 1 < world_size(); ++target) {
      const auto value = static_cast<char>('a' + target);
      MPI_Put(&value, 1, MPI_CHAR, target, 3, 1, MPI_CHAR, window);
    }
    MPI_Put(nullptr, 0, MPI_CHAR, world_size() - 1, 0, 0, MPI_CHAR, window);
    MPI_Put(&memory[0], 1, MPI_CHAR, MPI_PROC_NULL, 0, 1, MPI_CHAR, window);
  }
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
  if (base != nullptr) expect_equal(base[3 * unit], 'a' + world_rank(), "what was put to the third unit");
  MPI_Win_free(&window);
}

namespace {

void expect_class(int code, int error_class, const std::string& what) {
  expect_equal(class_of(code), error_class, what);
}

/// Makes each access with an argument that MPI refuses, at a rank that is locked.
void check_refused(MPI_Win window, int rank) {
  const int value = 1;
  int old = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  const std::string at = " at rank " + std::to_string(rank);
  expect_class(MPI_Put(&value, -1, MPI_INT, rank, 0, 1, MPI_INT, window), MPI_ERR_COUNT, "a negative count" + at);
  expect_class(MPI_Put(&value, 1, MPI_DATATYPE_NULL, rank, 0, 1, MPI_INT, window), MPI_ERR_TYPE, "no type" + at);
  expect_class(MPI_Get(&old, 1, MPI_INT, rank, -1, 1, MPI_INT, window), MPI_ERR_DISP, "a negative place" + at);
  expect_class(MPI_Accumulate(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, MPI_OP_NULL, window), MPI_ERR_OP,
               "an accumulate without operation" + at);
  expect_class(MPI_Get_accumulate(&value, 1, MPI_INT, &old, -1, MPI_INT, rank, 0, 1, MPI_INT, MPI_SUM, window),
               MPI_ERR_COUNT, "a negative count of results" + at);
  expect_class(MPI_Rput(&value, 1, MPI_INT, rank, 0, -1, MPI_INT, window, &request), MPI_ERR_COUNT,
               "a negative count there" + at);
  expect_class(MPI_Rget(&old, -1, MPI_INT, rank, 0, 1, MPI_INT, window, &request), MPI_ERR_COUNT,
               "a request of a negative count" + at);
  expect_class(MPI_Raccumulate(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, MPI_OP_NULL, window, &request), MPI_ERR_OP,
               "a request without operation" + at);
  expect_class(MPI_Rget_accumulate(&value, 1, MPI_INT, &old, 1, MPI_DATATYPE_NULL, rank, 0, 1, MPI_INT, MPI_SUM, window,
                                   &request),
               MPI_ERR_TYPE, "results without type" + at);
  expect_class(MPI_Fetch_and_op(&value, &old, MPI_INT, rank, 0, MPI_OP_NULL, window), MPI_ERR_OP, "no operation" + at);
  expect_class(MPI_Compare_and_swap(&value, &value, &old, MPI_DATATYPE_NULL, rank, 0, window), MPI_ERR_TYPE,
               "a swap without type" + at);
}

/// MPI_NO_OP is for calls with a result (MPI 4.1, 12.3.4).
void check_no_op_refused(MPI_Win window, const std::string& when) {
  const int values[2] = {1, 1};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Datatype two = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_INT, &two);
  MPI_Type_commit(&two);
  for (const MPI_Datatype type : {MPI_INT, MPI_2INT, two}) {
    expect_class(MPI_Accumulate(values, 1, type, 0, 0, 1, type, MPI_NO_OP, window), MPI_ERR_OP,
                 "an accumulate of nothing" + when);
    expect_class(MPI_Raccumulate(values, 1, type, 0, 0, 1, type, MPI_NO_OP, window, &request), MPI_ERR_OP,
                 "a request of nothing" + when);
#if MPI_VERSION >= 4
    expect_class(MPI_Accumulate_c(values, 1, type, 0, 0, 1, type, MPI_NO_OP, window), MPI_ERR_OP,
                 "a large accumulate of nothing" + when);
#endif
  }
  MPI_Type_free(&two);
}

/// A window of this rank alone, and a group with others.
void check_group_refused() {
  int* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_SELF, static_cast<void*>(&memory), &window);
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  expect_class(MPI_Win_post(all, 0, window), MPI_ERR_GROUP, "a post to a process that is not in the window");
  expect_class(MPI_Win_start(all, 0, window), MPI_ERR_GROUP, "a start with a process that is not in the window");
  MPI_Group_free(&all);
  MPI_Win_free(&window);
}

}  // namespace

void run_errors() {
  if (world_size() > 1) check_group_refused();
  Shared<int> shared(4);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  const int value = 1;
  int old = 0;
  const MPI_Win window = shared.window;
  const auto is = &expect_class;
  is(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window), MPI_ERR_RMA_SYNC, "a put outside of epochs");
  is(MPI_Win_unlock(0, window), MPI_ERR_RMA_SYNC, "an unlock of what is not locked");
  is(MPI_Win_complete(window), MPI_ERR_RMA_SYNC, "complete without start");
  is(MPI_Win_wait(window), MPI_ERR_RMA_SYNC, "wait without post");
  is(MPI_Win_lock(-1, world_size() - 1, 0, window), class_of(MPI_Win_lock(-1, 0, 0, window)), "a lock of no kind");
  is(MPI_Win_flush(0, window), MPI_ERR_RMA_SYNC, "a flush outside of epochs");
  is(MPI_Win_unlock_all(window), MPI_ERR_RMA_SYNC, "unlock_all without lock_all");
  MPI_Win_lock_all(0, window);
  is(MPI_Win_fence(0, window), MPI_ERR_RMA_SYNC, "a fence under lock_all");
  is(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window), MPI_ERR_RMA_SYNC, "a lock under lock_all");
  is(MPI_Put(&value, 1, MPI_INT, world_size(), 0, 1, MPI_INT, window), MPI_ERR_RANK, "a rank that is none");
  for (int rank = 0; rank < world_size(); ++rank) check_refused(window, rank);
  is(MPI_Put(&value, 1, MPI_INT, 0, 4, 1, MPI_INT, window), MPI_ERR_RMA_RANGE, "a place behind the window");
  constexpr MPI_Aint kFar = MPI_Aint{1} << 62;  // four times that is 0 to 64 bits
  is(MPI_Put(&value, 1, MPI_INT, 0, kFar, 1, MPI_INT, window), MPI_ERR_RMA_RANGE, "a place beyond 64 bits");
#if MPI_VERSION >= 4
  is(MPI_Put_c(&value, kFar, MPI_INT, 0, 0, kFar, MPI_INT, window), MPI_ERR_RMA_RANGE, "more bytes than 64 bits count");
  is(MPI_Get_c(&old, kFar, MPI_INT, 0, 0, kFar, MPI_INT, window), MPI_ERR_RMA_RANGE, "a get of more bytes than that");
  is(MPI_Put_c(&value, kFar, MPI_INT, 0, 1, 0, MPI_INT, window), MPI_ERR_RMA_RANGE, "2^64 bytes for none");
  is(MPI_Put_c(&value, kFar + 1, MPI_INT, 0, 0, 1, MPI_INT, window), MPI_ERR_RMA_RANGE, "2^64 bytes too many");
  is(MPI_Get_c(&old, 1, MPI_INT, 0, 0, kFar + 1, MPI_INT, window), MPI_ERR_RMA_RANGE, "2^64 bytes too many there");
  MPI_Datatype four = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(4, MPI_INT, &four);
  is(MPI_Accumulate_c(&value, kFar, four, 0, 0, kFar, four, MPI_SUM, window), MPI_ERR_RMA_RANGE, "2^64 elements");
  is(MPI_Accumulate_c(&value, kFar + 1, four, 0, 0, 4, MPI_INT, MPI_SUM, window), MPI_ERR_RMA_RANGE,
     "2^64 elements too many");
  MPI_Type_free(&four);
#endif
  is(MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_MAXLOC, window), MPI_ERR_OP, "MAXLOC of numbers");
  check_no_op_refused(window, "");
  // At a rank that was accessed before, accesses go a short way.
  MPI_Get(&old, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
  is(MPI_Put(&value, 1, MPI_INT, 0, 4, 1, MPI_INT, window), MPI_ERR_RMA_RANGE, "a place behind the window, later");
  is(MPI_Fetch_and_op(&value, &old, MPI_INT, 0, 4, MPI_SUM, window), MPI_ERR_RMA_RANGE, "a sum behind the window");
  is(MPI_Fetch_and_op(nullptr, &old, MPI_INT, 0, 0, MPI_NO_OP, window), MPI_SUCCESS, "a read");
  check_no_op_refused(window, ", later");
  MPI_Win_unlock_all(window);
  is(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window), MPI_ERR_RMA_SYNC, "a put after the epoch");
  is(MPI_Win_flush(0, window), MPI_ERR_RMA_SYNC, "a flush after the epoch");
  MPI_Barrier(MPI_COMM_WORLD);
  expect_equal(shared.memory[0], 0, "memory that errors have left as it was");
}

int open_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

/// Windows on communicators that come and go, of which the later ones open nothing.
void run_many() {
  int first = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 1) first = open_descriptors();
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank() % 2, world_size() - world_rank(), &part);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(part, &rank);
    MPI_Comm_size(part, &size);
    std::vector<MPI_Win> windows(5);
    std::vector<int*> bases(windows.size());
    for (std::size_t j = 0; j < windows.size(); ++j)
      MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, part, static_cast<void*>(&bases[j]), &windows[j]);
    MPI_Comm_free(&part);
    for (std::size_t j = 0; j < windows.size(); ++j) {
      MPI_Win_fence(0, windows[j]);
      MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, windows[j]);
      MPI_Win_fence(MPI_MODE_NOSUCCEED, windows[j]);
      expect_equal(*bases[j], (rank + size - 1) % size, "the rank before in a part");
    }
    for (MPI_Win& window : windows) MPI_Win_free(&window);
  }
  expect(open_descriptors() < first + 16, "the descriptors of communicators that were freed stay open");
}

/// Windows on communicators of every set of ranks, the small ones first.
void run_subsets() {
  const auto all = 1U << static_cast<unsigned>(world_size());
  for (int ranks = 1; ranks <= world_size(); ++ranks) {
    for (unsigned set = 1; set < all; ++set) {
      if (std::popcount(set) != ranks) continue;
      const bool is_in = (set >> static_cast<unsigned>(world_rank()) & 1U) != 0;
      MPI_Comm some = MPI_COMM_NULL;
      MPI_Comm_split(MPI_COMM_WORLD, is_in ? 0 : MPI_UNDEFINED, 0, &some);
      if (!is_in) continue;
      int rank = 0;
      MPI_Comm_rank(some, &rank);
      MPI_Win window = MPI_WIN_NULL;
      int* memory = nullptr;
      MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, some, static_cast<void*>(&memory), &window);
      *memory = -1;
      MPI_Win_fence(0, window);
      MPI_Put(&rank, 1, MPI_INT, (rank + 1) % ranks, 0, 1, MPI_INT, window);
      MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
      expect_equal(*memory, (rank + ranks - 1) % ranks, "the rank before in a set");
      MPI_Win_free(&window);
      MPI_Comm_free(&some);
    }
  }
}

/// There are no descriptors for a context.
void run_few_descriptors() {
  const auto most = static_cast<rlim_t>(open_descriptors()) + 1;
  const rlimit few{most, most};
  expect(setrlimit(RLIMIT_NOFILE, &few) == 0, "the limit on descriptors");
  int* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&memory), &window);
  MPI_Win_fence(0, window);
  MPI_Win_free(&window);
}

/// From now on the kernel refuses rank 1 copies from and to other processes. Windows work all the same, each on a
/// communicator of its own.
void run_forbidden_copies() {
  const bool forbidden = world_rank() != 1 || sluice::test::forbid_kernel_copies();
  if (!forbidden) std::printf("no filter\n");
  for (int i = 0; i < 4; ++i) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    alignas(64) static int own[16];  // MPICH 4.0.2 puts before a window that begins elsewhere
    own[0] = -1;
    int* memory = own;
    MPI_Win window = MPI_WIN_NULL;
    if (i % 2 == 0) MPI_Win_create(own, sizeof own, sizeof(int), MPI_INFO_NULL, comm, &window);
    if (i % 2 == 1)
      MPI_Win_allocate(sizeof own, sizeof(int), MPI_INFO_NULL, comm, static_cast<void*>(&memory), &window);
    const int value = world_rank();
    MPI_Win_fence(0, window);
    MPI_Put(&value, 1, MPI_INT, 1 - world_rank(), 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    expect_equal(*memory, 1 - world_rank(), "what the other rank has put");
    MPI_Win_free(&window);
    MPI_Comm_free(&comm);
  }
}

void run_not_freed() {
  static int* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&memory), &window);
  MPI_Win_set_name(window, "forgotten");
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world_rank(), 0, window);
  const int value = 1;
  MPI_Put(&value, 1, MPI_INT, world_rank(), 0, 1, MPI_INT, window);
}

/// Calls that are not about windows.
void run_untouched() {
  int sum = 0;
  const int one = 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  expect_equal(sum, world_size(), "a sum over all ranks");
  MPI_Win window = MPI_WIN_NULL;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  expect(MPI_Win_create(nullptr, 0, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &window) != MPI_SUCCESS, "a unit of 0 bytes");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}
