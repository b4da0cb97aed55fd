// SPDX-License-Identifier: Apache-2.0
// Accumulates of many elements at any place, beside MPI's reductions one by one, and of several ranks at a time.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

constexpr std::size_t kMemory = 256;

struct Type {
  MPI_Datatype type;
  std::size_t bytes;
  std::vector<MPI_Op> ops;
};

const std::vector<Type>& types_of_accumulates() {
  const std::vector<MPI_Op> integer{MPI_MAX, MPI_MIN, MPI_SUM,  MPI_PROD, MPI_LAND,    MPI_BAND,
                                    MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_REPLACE, MPI_NO_OP};
  const std::vector<MPI_Op> floating{MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_REPLACE, MPI_NO_OP};
  static const std::vector<Type> all{{MPI_CHAR, 1, integer},
                                     {MPI_SIGNED_CHAR, 1, integer},
                                     {MPI_UNSIGNED_CHAR, 1, integer},
                                     {MPI_SHORT, 2, integer},
                                     {MPI_UNSIGNED_SHORT, 2, integer},
                                     {MPI_INT, 4, integer},
                                     {MPI_UNSIGNED, 4, integer},
                                     {MPI_LONG, 8, integer},
                                     {MPI_UINT64_T, 8, integer},
                                     {MPI_FLOAT, 4, floating},
                                     {MPI_DOUBLE, 8, floating},
                                     {MPI_C_BOOL, 1, {MPI_LAND, MPI_LOR, MPI_LXOR, MPI_REPLACE, MPI_NO_OP}},
                                     {MPI_BYTE, 1, {MPI_BAND, MPI_BOR, MPI_BXOR, MPI_REPLACE, MPI_NO_OP}}};
  return all;
}

/// Elements of small values of both signs.
std::vector<std::byte> random_elements(const Type& type, std::size_t count, std::mt19937_64& random) {
  std::vector<std::byte> all(count * type.bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const int value = static_cast<int>(random() % 200) - 100;
    const auto put = [&](auto typed) { std::memcpy(all.data() + i * sizeof typed, &typed, sizeof typed); };
    if (type.type == MPI_FLOAT) {
      put(static_cast<float>(value));
    } else if (type.type == MPI_DOUBLE) {
      put(static_cast<double>(value));
    } else if (type.type == MPI_C_BOOL) {
      put(value > 0);
    } else {
      std::int64_t wide = random() % 3 == 0 ? static_cast<std::int64_t>(random()) : value;
      if (random() % 4 == 0) wide = 0;
      std::memcpy(all.data() + i * type.bytes, &wide, type.bytes);
    }
  }
  return all;
}

template <class T>
void reduce_unsigned(const std::byte* operands, std::byte* place, int elements, bool least) {
  for (int i = 0; i < elements; ++i, operands += sizeof(T), place += sizeof(T)) {
    T operand;
    T there;
    std::memcpy(&operand, operands, sizeof operand);
    std::memcpy(&there, place, sizeof there);
    const T result = least ? std::min(there, operand) : std::max(there, operand);
    std::memcpy(place, &result, sizeof result);
  }
}

/// MPI's reduction, but for extremes of integers without sign, which MPICH 4.0.2 compares as if they had one.
void reduce(const std::byte* operands, std::byte* place, int elements, MPI_Datatype type, MPI_Op op) {
  const bool extreme = op == MPI_MIN || op == MPI_MAX;
  if (extreme && type == MPI_UNSIGNED_CHAR)
    return reduce_unsigned<std::uint8_t>(operands, place, elements, op == MPI_MIN);
  if (extreme && type == MPI_UNSIGNED_SHORT)
    return reduce_unsigned<std::uint16_t>(operands, place, elements, op == MPI_MIN);
  if (extreme && type == MPI_UNSIGNED) return reduce_unsigned<std::uint32_t>(operands, place, elements, op == MPI_MIN);
  if (extreme && type == MPI_UINT64_T) return reduce_unsigned<std::uint64_t>(operands, place, elements, op == MPI_MIN);
  MPI_Reduce_local(operands, place, elements, type, op);
}

/// Changes some elements at the next rank, and the same ones in `oracle`, one by one.
void change_both(Shared<std::byte>& shared, std::byte* oracle, const Type& type, MPI_Op op, std::mt19937_64& random) {
  const std::size_t room = kMemory / type.bytes;
  const std::size_t first = random() % room;
  const std::size_t count = 1 + random() % std::min<std::size_t>(room - first, random() % 2 == 0 ? 4 : 100);
  const auto elements = static_cast<int>(count);
  const auto at = static_cast<MPI_Aint>(first * type.bytes);
  const int next = (world_rank() + 1) % world_size();
  const std::vector<std::byte> operands = random_elements(type, count, random);
  std::vector<std::byte> before(operands.size());
  std::byte* const place = oracle + at;
  const std::vector<std::byte> expected(place, place + operands.size());
  const bool fetches = op == MPI_NO_OP || random() % 2 == 0;
  if (fetches) {
    MPI_Get_accumulate(operands.data(), elements, type.type, before.data(), elements, type.type, next, at, elements,
                       type.type, op, shared.window);
  } else {
    MPI_Accumulate(operands.data(), elements, type.type, next, at, elements, type.type, op, shared.window);
  }
  MPI_Win_flush(next, shared.window);
  char name[MPI_MAX_OBJECT_NAME] = {};
  int length = 0;
  MPI_Type_get_name(type.type, name, &length);
  const auto number = std::ranges::find(type.ops, op) - type.ops.begin();
  const std::string what = "by operation " + std::to_string(number) + " of " + name + ": " + std::to_string(count) +
                           " elements from " + std::to_string(at) + " on";
  if (fetches) expect(before == expected, "the elements before " + what);
  if (op == MPI_REPLACE) {
    std::memcpy(place, operands.data(), operands.size());
  } else if (op != MPI_NO_OP) {
    reduce(operands.data(), place, elements, type.type, op);
  }
  std::vector<std::byte> all(kMemory);
  MPI_Get(all.data(), static_cast<int>(kMemory), MPI_BYTE, next, 0, static_cast<int>(kMemory), MPI_BYTE, shared.window);
  MPI_Win_flush(next, shared.window);
  expect(std::memcmp(all.data(), oracle, kMemory) == 0, "an accumulate " + what);
}

/// All ranks add ones to random parts of the same numbers, and count what they have added.
template <class T>
void add_parts(MPI_Datatype type, const char* what) {
  constexpr int kNumbersHere = 61;
  Shared<T> shared(kNumbersHere + 1);
  std::mt19937_64 random(static_cast<std::uint64_t>(world_rank()) + 1);
  std::vector<int> added(kNumbersHere);
  const std::vector<T> ones(kNumbersHere, T(1));
  std::vector<T> before(kNumbersHere);
  MPI_Win_lock_all(0, shared.window);
  for (int i = 0; i < 2000; ++i) {
    const int first = static_cast<int>(random() % kNumbersHere);
    const int count = 1 + static_cast<int>(random() % static_cast<std::uint64_t>(kNumbersHere - first));
    if (i % 3 == 0) {
      MPI_Get_accumulate(ones.data(), count, type, before.data(), count, type, 0, first, count, type, MPI_SUM,
                         shared.window);
    } else {
      MPI_Accumulate(ones.data(), count, type, 0, first, count, type, MPI_SUM, shared.window);
    }
    for (int j = first; j < first + count; ++j) ++added[static_cast<std::size_t>(j)];
  }
  MPI_Win_unlock_all(shared.window);
  std::vector<int> all(kNumbersHere);
  MPI_Allreduce(added.data(), all.data(), kNumbersHere, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  for (int j = 0; world_rank() == 0 && j < kNumbersHere; ++j)
    expect(shared.memory[j] == static_cast<T>(all[static_cast<std::size_t>(j)]), std::string("the sum of ") + what);
  if (world_rank() == 0) expect(shared.memory[kNumbersHere] == T(0), std::string("the neighbour of ") + what);
}

/// Memory that MPI shares.
void add_to_shared_memory() {
  signed char* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&memory), &window);
  std::memset(memory, 0, 64);
  MPI_Win_fence(0, window);
  const std::vector<signed char> ones(50, 1);
  for (int i = 0; i < 2; ++i)
    MPI_Accumulate(ones.data(), 50, MPI_SIGNED_CHAR, 0, 5, 50, MPI_SIGNED_CHAR, MPI_SUM, window);
  MPI_Win_fence(0, window);
  for (int i = 0; world_rank() == 0 && i < 64; ++i)
    expect_equal(memory[i], i >= 5 && i < 55 ? 2 * world_size() : 0, "a sum in shared memory");
  MPI_Win_free(&window);
}

}  // namespace

void run_accumulates() {
  const auto seed = static_cast<std::uint64_t>(world_rank()) + 20;
  std::mt19937_64 random(seed);
  Shared<std::byte> shared(static_cast<int>(kMemory));
  MPI_Win_lock_all(0, shared.window);
  for (const Type& type : types_of_accumulates()) {
    const int next = (world_rank() + 1) % world_size();
    std::vector<std::byte> oracle = random_elements(type, kMemory / type.bytes, random);
    MPI_Put(oracle.data(), static_cast<int>(kMemory), MPI_BYTE, next, 0, static_cast<int>(kMemory), MPI_BYTE,
            shared.window);
    MPI_Win_flush(next, shared.window);
    for (int i = 0; i < 300; ++i)
      change_both(shared, oracle.data(), type, type.ops[random() % type.ops.size()], random);
  }
  MPI_Win_unlock_all(shared.window);
  add_parts<signed char>(MPI_SIGNED_CHAR, "chars");
  add_parts<short>(MPI_SHORT, "shorts");
  add_parts<int>(MPI_INT, "ints");
  add_parts<float>(MPI_FLOAT, "floats");
  add_parts<double>(MPI_DOUBLE, "doubles");
  add_to_shared_memory();
}
