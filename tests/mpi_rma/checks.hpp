// SPDX-License-Identifier: Apache-2.0
// Common to the programs of MPI in this folder, mpis and mpix. They use MPI alone.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/random_seed.hpp"

namespace checks {

inline std::atomic<int>& failures() {
  static std::atomic<int> count = 0;
  return count;
}

inline int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

inline int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Counts a failure, with its text, unless `fact` is true.
inline void expect(bool fact, const std::string& what) {
  if (fact) return;
  if (++failures() <= 10) std::fprintf(stderr, "rank %d: %s\n", world_rank(), what.c_str());
}

template <class A, class B>
void expect_equal(const A& found, const B& expected, const std::string& what) {
  expect(found == static_cast<A>(expected),
         what + ": " + std::to_string(found) + " instead of " + std::to_string(expected));
}

inline int class_of(int code) {
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  return error_class;
}

using Programs = std::map<std::string, void (*)()>;

/// Runs the programs that the arguments name, from the one at `first` on, and returns the exit code. Rank 0 prints
/// `passed` if no rank has counted a failure.
inline int run_named(const Programs& programs, int argc, char** argv, int first, bool threads) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
  for (int i = first; i < argc; ++i) {
    const auto found = programs.find(argv[i]);
    if (found == programs.end()) MPI_Abort(MPI_COMM_WORLD, 2);
    found->second();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  int all = 0;
  const int mine = failures();
  MPI_Reduce(&mine, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (world_rank() == 0) std::printf(all == 0 ? "passed\n" : "%d failures\n", all);
  MPI_Finalize();
  return mine == 0 ? 0 : 1;
}

/// The seed of the first rank.
inline unsigned seed() {
  static const unsigned chosen = [] {
    unsigned made = 0;
    if (world_rank() == 0) made = static_cast<unsigned>(sluice::test::random_seed());
    MPI_Bcast(&made, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
    return made;
  }();
  return chosen;
}

template <class T>
T attribute(MPI_Win window, int key) {
  void* value = nullptr;
  int flag = 0;
  MPI_Win_get_attr(window, key, static_cast<void*>(&value), &flag);
  expect(flag != 0, "a predefined attribute");
  return flag != 0 ? *static_cast<T*>(value) : T{};
}

/// A window of `count` elements on MPI_COMM_WORLD, made by MPI_Win_allocate or MPI_Win_create.
template <class T>
class Shared {
 public:
  explicit Shared(int count, bool allocate = true, MPI_Info info = MPI_INFO_NULL)
      : own_(allocate ? 0 : static_cast<std::size_t>(count)) {
    const auto bytes = static_cast<MPI_Aint>(sizeof(T)) * count;
    if (allocate) {
      MPI_Win_allocate(bytes, sizeof(T), info, MPI_COMM_WORLD, static_cast<void*>(&memory), &window);
    } else {
      memory = own_.data();
      MPI_Win_create(memory, bytes, sizeof(T), info, MPI_COMM_WORLD, &window);
    }
    for (int i = 0; i < count; ++i) memory[i] = T{};
    MPI_Barrier(MPI_COMM_WORLD);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { MPI_Win_free(&window); }

  T* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;

 private:
  std::vector<T> own_;
};

}  // namespace checks
