// SPDX-License-Identifier: Apache-2.0
// Accesses of all kinds in any order, each compared with a model of the elements.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

constexpr int kMixedSteps = 4000;
constexpr int kMixedWords = 4;  // of 8 bytes, that a rank has at each other rank
using MixedWords = std::vector<std::uint64_t>;

/// One rank's words at another one, and what they should be.
struct Mixed {
  MPI_Win window;
  int rank;
  std::minstd_rand& random;
  MixedWords& model;

  std::size_t any(std::size_t below) { return random() % below; }
};

template <class T>
T mixed_change(T there, T operand, MPI_Op op) {
  if (op == MPI_SUM) return static_cast<T>(static_cast<std::uint64_t>(there) + static_cast<std::uint64_t>(operand));
  if (op == MPI_MIN) return std::min(there, operand);
  if (op == MPI_MAX) return std::max(there, operand);
  return op == MPI_REPLACE ? operand : there;
}

/// Small numbers, whose sums are exact in every type.
template <class T>
T mixed_number(Mixed& mixed) {
  return static_cast<T>(mixed.any(100));
}

/// An element at a rank.
template <class T>
struct MixedElement {
  MPI_Datatype type;
  MPI_Aint at;
  T known;
};

/// Makes an access of some kind. Returns what the element is afterwards. `found`: what was fetched; else as it is
/// known.
template <class T>
T make_access(Mixed& mixed, const MixedElement<T>& element, T& operand, T& found) {
  const auto& [type, at, known] = element;
  const MPI_Op ops[] = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_REPLACE, MPI_NO_OP};
  const MPI_Op op = ops[mixed.any(std::size(ops))];
  const auto& [window, rank, random, model] = mixed;
  switch (mixed.any(6)) {
    case 0: MPI_Put(&operand, 1, type, rank, at, 1, type, window); return operand;
    case 1: MPI_Get(&found, 1, type, rank, at, 1, type, window); return known;
    case 2:
      if (op == MPI_NO_OP) return known;  // which MPI_Accumulate does not take
      MPI_Accumulate(&operand, 1, type, rank, at, 1, type, op, window);
      return mixed_change(known, operand, op);
    case 3: MPI_Fetch_and_op(&operand, &found, type, rank, at, op, window); return mixed_change(known, operand, op);
    case 4:
      MPI_Get_accumulate(&operand, 1, type, &found, 1, type, rank, at, 1, type, op, window);
      return mixed_change(known, operand, op);
    default: {
      const T expected = mixed.any(2) == 0 ? known : mixed_number<T>(mixed);
      MPI_Compare_and_swap(&operand, &expected, &found, type, rank, at, window);
      return expected == known ? operand : known;
    }
  }
}

void flush_somehow(Mixed& mixed) {
  switch (mixed.any(4)) {
    case 0: MPI_Win_flush_all(mixed.window); break;
    case 1: MPI_Win_flush_local_all(mixed.window); break;
    case 2: MPI_Win_flush_local(mixed.rank, mixed.window); break;
    default: MPI_Win_flush(mixed.rank, mixed.window);
  }
}

template <class T>
void check_access(Mixed& mixed, MPI_Datatype type) {
  const std::size_t place = mixed.any(kMixedWords * sizeof(std::uint64_t) / sizeof(T)) * sizeof(T);
  auto* const modelled = reinterpret_cast<std::byte*>(mixed.model.data()) + place;
  MixedElement<T> element{type, MPI_Aint{world_rank()} * kMixedWords * 8 + static_cast<MPI_Aint>(place), T{}};
  std::memcpy(&element.known, modelled, sizeof(T));
  T operand = mixed_number<T>(mixed);
  T found = element.known;
  const T next = make_access(mixed, element, operand, found);
  flush_somehow(mixed);
  expect_equal(found, element.known, "an element that was fetched");
  MPI_Win_flush(mixed.rank, mixed.window);  // after a local one, which does not order the next access
  std::memcpy(modelled, &next, sizeof next);
}

void check_step(Mixed& mixed) {
  switch (mixed.any(7)) {
    case 0: return check_access<int>(mixed, MPI_INT);
    case 1: return check_access<long>(mixed, MPI_LONG);
    case 2: return check_access<std::uint16_t>(mixed, MPI_UINT16_T);
    case 3: return check_access<std::int8_t>(mixed, MPI_INT8_T);
    case 4: return check_access<std::uint64_t>(mixed, MPI_UINT64_T);
    case 5: return check_access<std::uint32_t>(mixed, MPI_UINT32_T);
    default: return check_access<std::int16_t>(mixed, MPI_INT16_T);
  }
}

/// The least and the largest of unsigned numbers, one of which would be negative if it had a sign.
template <class T>
void check_unsigned(MPI_Win window, MPI_Datatype type) {
  const MPI_Aint at = MPI_Aint{world_rank()} * kMixedWords * 8;
  const T numbers[] = {static_cast<T>(~T{0}), 51};
  const std::uint64_t zero = 0;
  for (const MPI_Op op : {MPI_MIN, MPI_MAX}) {
    T found = 0;
    for (const T& number : numbers) {
      MPI_Accumulate(&number, 1, type, 0, at, 1, type, &number == &numbers[0] ? MPI_REPLACE : op, window);
      MPI_Win_flush(0, window);
    }
    MPI_Get(&found, 1, type, 0, at, 1, type, window);
    MPI_Win_flush(0, window);
    expect_equal(found, op == MPI_MIN ? numbers[1] : numbers[0], "the least or the largest unsigned number");
  }
  MPI_Put(&zero, 1, MPI_UINT64_T, 0, at, 1, MPI_UINT64_T, window);
  MPI_Win_flush(0, window);
}

/// All words of this rank at all ranks are as the model says.
void check_all(MPI_Win window, const std::vector<MixedWords>& models) {
  for (int rank = 0; rank < world_size(); ++rank) {
    MixedWords found(kMixedWords);
    MPI_Get(found.data(), kMixedWords, MPI_UINT64_T, rank, MPI_Aint{world_rank()} * kMixedWords * 8, kMixedWords,
            MPI_UINT64_T, window);
    MPI_Win_flush(rank, window);
    expect(found == models[static_cast<std::size_t>(rank)], "the words of a rank at another one");
  }
}

}  // namespace

void run_mixed() {
  for (const bool allocate : {true, false}) {
    const Shared<char> shared(world_size() * kMixedWords * 8, allocate);
    std::minstd_rand random(seed() + static_cast<unsigned>(world_rank()));
    std::vector<MixedWords> models(static_cast<std::size_t>(world_size()), MixedWords(kMixedWords));
    MPI_Win_lock_all(0, shared.window);
    check_unsigned<std::uint8_t>(shared.window, MPI_UINT8_T);
    check_unsigned<std::uint16_t>(shared.window, MPI_UINT16_T);
    check_unsigned<std::uint32_t>(shared.window, MPI_UINT32_T);
    check_unsigned<std::uint64_t>(shared.window, MPI_UINT64_T);
    for (int step = 0; step < kMixedSteps; ++step) {
      const auto rank = random() % static_cast<unsigned>(world_size());
      Mixed mixed{shared.window, static_cast<int>(rank), random, models[rank]};
      check_step(mixed);
    }
    check_all(shared.window, models);
    MPI_Win_unlock_all(shared.window);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}
