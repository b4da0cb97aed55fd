// SPDX-License-Identifier: Apache-2.0
// Accumulates of all ranks to the same elements at the same time.
#include <complex>
#include <cstdint>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

constexpr int kTimes = 200;
constexpr int kNumbers = 3;

/// All ranks add to the same numbers, by each of the calls in turn, and the sum is right.
template <class T>
void check_sum(MPI_Datatype type, bool allocate, const char* what) {
  Shared<T> shared(kNumbers, allocate);
  const T ones[kNumbers] = {T(1), T(1), T(1)};
  T before[kNumbers] = {};
  MPI_Win_lock_all(0, shared.window);
  for (int i = 0; i < kTimes; ++i) {
    if (i % 3 == 0) MPI_Accumulate(ones, kNumbers, type, 0, 0, kNumbers, type, MPI_SUM, shared.window);
    if (i % 3 == 1)
      MPI_Get_accumulate(ones, kNumbers, type, before, kNumbers, type, 0, 0, kNumbers, type, MPI_SUM, shared.window);
    for (int j = 0; i % 3 == 2 && j < kNumbers; ++j) MPI_Fetch_and_op(ones, before, type, 0, j, MPI_SUM, shared.window);
  }
  MPI_Win_unlock_all(shared.window);
  MPI_Barrier(MPI_COMM_WORLD);
  T expected{};
  for (int i = 0; i < kTimes * world_size(); ++i) expected = static_cast<T>(expected + T(1));
  MPI_Win_lock(MPI_LOCK_SHARED, world_rank(), 0, shared.window);
  for (int j = 0; world_rank() == 0 && j < kNumbers; ++j)
    expect(shared.memory[j] == expected, std::string("the sum of ") + what + (allocate ? ", allocated" : ""));
  MPI_Win_unlock(world_rank(), shared.window);
}

struct Pair {
  double value;
  int index;
};

}  // namespace

void run_atomics() {
  for (const bool allocate : {true, false}) {
    check_sum<signed char>(MPI_SIGNED_CHAR, allocate, "char");
    check_sum<short>(MPI_SHORT, allocate, "short");
    check_sum<int>(MPI_INT, allocate, "int");
    check_sum<std::uint64_t>(MPI_UINT64_T, allocate, "uint64");
    check_sum<float>(MPI_FLOAT, allocate, "float");
    check_sum<double>(MPI_DOUBLE, allocate, "double");
    check_sum<long double>(MPI_LONG_DOUBLE, allocate, "long double");
    check_sum<std::complex<double>>(MPI_C_DOUBLE_COMPLEX, allocate, "complex");
  }
  // Operations of one type, of which processors have an instruction for some.
  Shared<int> shared(1);
  shared.memory[0] = 1;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, shared.window);
  const int two = 2;
  const int four = 4;
  for (int i = 0; i < kTimes; ++i) {
    MPI_Accumulate(&four, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, shared.window);
    const int one = 1;
    MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_PROD, shared.window);
    int before = 0;
    MPI_Fetch_and_op(&two, &before, MPI_INT, 0, 0, MPI_BOR, shared.window);
  }
  MPI_Win_unlock_all(shared.window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 0) expect_equal(shared.memory[0], 3 + 4 * kTimes * world_size(), "a sum beside other operations");
  Shared<Pair> pairs(1);
  const Pair mine{static_cast<double>(world_rank() % 2), world_rank()};
  MPI_Win_fence(0, pairs.window);
  MPI_Accumulate(&mine, 1, MPI_DOUBLE_INT, 0, 0, 1, MPI_DOUBLE_INT, MPI_MAXLOC, pairs.window);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, pairs.window);
  if (world_rank() == 0 && world_size() > 1) expect_equal(pairs.memory[0].index, 1, "the place of the maximum");
}

void run_compare_and_swap() {
  for (const bool allocate : {true, false}) {
    Shared<short> narrow(4, allocate);
    Shared<std::int64_t> wide(4, allocate);
    const auto count = [&](auto& shared, auto zero, MPI_Datatype type) {
      using T = decltype(zero);
      MPI_Win_lock_all(0, shared.window);
      for (int i = 0; i < kTimes; ++i) {
        T seen = 0;
        for (T found = 0;; seen = found) {
          const auto next = static_cast<T>(seen + 1);
          MPI_Compare_and_swap(&next, &seen, &found, type, 0, 1, shared.window);
          MPI_Win_flush(0, shared.window);
          if (found == seen) break;
        }
      }
      MPI_Win_unlock_all(shared.window);
      MPI_Barrier(MPI_COMM_WORLD);
      if (world_rank() == 0) expect_equal(shared.memory[1], kTimes * world_size(), "what all ranks have counted");
      if (world_rank() == 0) expect_equal(shared.memory[0] + shared.memory[2], 0, "the neighbours of a counter");
    };
    count(narrow, short{0}, MPI_SHORT);
    count(wide, std::int64_t{0}, MPI_INT64_T);
  }
}
