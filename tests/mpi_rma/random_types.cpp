// SPDX-License-Identifier: Apache-2.0
// Types of types, as MPI packs them, and large ones.
#include <sys/mman.h>

#include <random>
#include <type_traits>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

#if MPI_VERSION >= 4
#define LARGE(name) name##_c
using Count = MPI_Count;
using Bytes = MPI_Count;
#else
#define LARGE(name) name
using Count = int;
using Bytes = MPI_Aint;
#endif

/// Types of types, of which only the outermost one is committed. Half of the calls have large counts.
class RandomTypes {
 public:
  explicit RandomTypes(unsigned seed) : random_(seed) {}

  MPI_Datatype make() {
    const MPI_Datatype named[] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE, MPI_SHORT_INT, MPI_LONG_INT};
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_dup(named[any(6)], &type);
    for (int left = any(4); left > 0; --left) {
      MPI_Datatype outer = derive(type);
      MPI_Type_free(&type);
      type = outer;
    }
    MPI_Type_commit(&type);
    return type;
  }

 private:
  int any(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  MPI_Datatype derive(MPI_Datatype type) {
    switch (any(5)) {
      case 0: return vector_of(type);
      case 1: return blocks_of(type);
      case 2: return bounds_of(type);
      case 3: return any(2) == 0 ? subarray_of<int>(type) : subarray_of<Count>(type);
      default: return any(2) == 0 ? distributed_of<int>(type) : distributed_of<Count>(type);
    }
  }

  MPI_Datatype vector_of(MPI_Datatype type) {
    MPI_Datatype made = MPI_DATATYPE_NULL;
    const int stride = any(2) == 0 ? 2 + any(3) : -3;
    switch (any(3)) {
      case 0: MPI_Type_contiguous(any(4), type, &made); break;
      case 1: LARGE(MPI_Type_vector)(1 + any(3), 1 + any(2), stride, type, &made); break;
      default: MPI_Type_create_hvector(1 + any(3), 1, stride * extent_of(type), type, &made);
    }
    return made;
  }

  MPI_Datatype blocks_of(MPI_Datatype type) {
    const Count lengths[] = {any(3), 1 + any(2), any(2)};
    const Count places[] = {6, any(2), -2};
    const Bytes bytes[] = {8 * extent_of(type), any(9), -2 * extent_of(type)};
    const MPI_Aint addresses[] = {8 * extent_of(type), any(9), -2 * extent_of(type)};
    const MPI_Datatype types[] = {type, MPI_BYTE, type};
    MPI_Datatype made = MPI_DATATYPE_NULL;
    switch (any(5)) {
      case 0: LARGE(MPI_Type_indexed)(3, lengths, places, type, &made); break;
      case 1: LARGE(MPI_Type_create_hindexed)(3, lengths, bytes, type, &made); break;
      case 2: LARGE(MPI_Type_create_indexed_block)(3, 2, places, type, &made); break;
      case 3: MPI_Type_create_hindexed_block(3, 1, addresses, type, &made); break;
      default: LARGE(MPI_Type_create_struct)(3, lengths, bytes, types, &made);
    }
    return made;
  }

  MPI_Datatype bounds_of(MPI_Datatype type) {
    MPI_Datatype made = MPI_DATATYPE_NULL;
    if (any(2) == 0) {
      MPI_Type_dup(type, &made);
    } else {
      LARGE(MPI_Type_create_resized)(type, any(9) - 4, extent_of(type) + any(9), &made);
    }
    return made;
  }

  template <class Number>
  MPI_Datatype subarray_of(MPI_Datatype type) {
    const int dimensions = 1 + any(3);
    Number sizes[3];
    Number parts[3];
    Number starts[3];
    for (int i = 0; i < dimensions; ++i) {
      sizes[i] = 1 + any(5);
      parts[i] = 1 + any(static_cast<int>(sizes[i]));
      starts[i] = any(static_cast<int>(sizes[i] - parts[i]) + 1);
    }
    MPI_Datatype made = MPI_DATATYPE_NULL;
    if constexpr (std::is_same_v<Number, int>) {
      MPI_Type_create_subarray(dimensions, sizes, parts, starts, any_order(), type, &made);
    } else {
      LARGE(MPI_Type_create_subarray)(dimensions, sizes, parts, starts, any_order(), type, &made);
    }
    return made;
  }

  template <class Number>
  MPI_Datatype distributed_of(MPI_Datatype type) {
    const int dimensions = 1 + any(3);
    Number sizes[3];
    int distributions[3];
    int arguments[3];
    int processes[3];
    int all = 1;
    for (int i = 0; i < dimensions; ++i) {
      const int kinds[] = {MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
      sizes[i] = 1 + any(7);
      distributions[i] = kinds[any(3)];
      processes[i] = distributions[i] == MPI_DISTRIBUTE_NONE ? 1 : 1 + any(3);
      arguments[i] = MPI_DISTRIBUTE_DFLT_DARG;
      const int least = static_cast<int>((sizes[i] + processes[i] - 1) / processes[i]);
      if (distributions[i] == MPI_DISTRIBUTE_BLOCK && any(2) == 0) arguments[i] = least + any(2);
      if (distributions[i] == MPI_DISTRIBUTE_CYCLIC && any(2) == 0) arguments[i] = 1 + any(3);
      all *= processes[i];
    }
    MPI_Datatype made = MPI_DATATYPE_NULL;
    if constexpr (std::is_same_v<Number, int>) {
      MPI_Type_create_darray(all, any(all), dimensions, sizes, distributions, arguments, processes, any_order(), type,
                             &made);
    } else {
      LARGE(MPI_Type_create_darray)
      (all, any(all), dimensions, sizes, distributions, arguments, processes, any_order(), type, &made);
    }
    return made;
  }

  int any_order() { return any(2) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN; }

  static MPI_Aint extent_of(MPI_Datatype type) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(type, &lower, &extent);
    return extent;
  }

  std::minstd_rand random_;
};

constexpr int kHalf = 1 << 14;  // bytes of memory before a value, and behind it

/// Puts, gets and accumulates of a type as MPI packs and unpacks it.
void check_packed(Shared<unsigned char>& shared, MPI_Datatype type) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  int size = 0;
  MPI_Type_get_true_extent(type, &lower, &extent);
  MPI_Type_size(type, &size);
  if (lower < -kHalf || lower + extent > kHalf) return;
  std::vector<unsigned char> memory(2 * kHalf);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<unsigned char>(i * 7 + i / 256);
  std::vector<unsigned char> packed(static_cast<std::size_t>(size));
  int position = 0;
  MPI_Pack(memory.data() + kHalf, 1, type, packed.data(), size, &position, MPI_COMM_SELF);

  const int next = (world_rank() + 1) % world_size();
  std::vector<unsigned char> found(packed.size());
  MPI_Put(memory.data(), 2 * kHalf, MPI_BYTE, next, 0, 2 * kHalf, MPI_BYTE, shared.window);
  MPI_Win_flush(next, shared.window);
  MPI_Get(found.data(), size, MPI_BYTE, next, kHalf, 1, type, shared.window);
  MPI_Win_flush(next, shared.window);
  expect(found == packed, "a random type at the target");
  MPI_Put(memory.data() + kHalf, 1, type, next, 0, size, MPI_BYTE, shared.window);
  MPI_Win_flush(next, shared.window);
  found.assign(found.size(), 0);
  MPI_Get(found.data(), size, MPI_BYTE, next, 0, size, MPI_BYTE, shared.window);
  MPI_Win_flush(next, shared.window);
  expect(found == packed, "a random type at the origin");

  std::vector<unsigned char> expected(memory.size(), 0xee);
  std::vector<unsigned char> unpacked(expected);
  position = 0;
  MPI_Unpack(packed.data(), size, &position, expected.data() + kHalf, 1, type, MPI_COMM_SELF);
  MPI_Get(unpacked.data() + kHalf, 1, type, next, 0, size, MPI_BYTE, shared.window);
  MPI_Win_flush(next, shared.window);
  expect(unpacked == expected, "a random type that is got, and the bytes between its data");
}

#undef LARGE

}  // namespace

void run_random_types() {
  Shared<unsigned char> shared(2 * kHalf);
  RandomTypes types(seed() + static_cast<unsigned>(world_rank()));
  const int next = (world_rank() + 1) % world_size();
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, shared.window);
  for (int i = 0; i < 500; ++i) {
    MPI_Datatype type = types.make();
    check_packed(shared, type);
    MPI_Type_free(&type);
  }
  MPI_Win_unlock(next, shared.window);
  MPI_Barrier(MPI_COMM_WORLD);
}

void run_large_types() {
  // Arrays whose parts are 4 GiB apart, or as large. Pages that are not touched take no memory.
  constexpr int kRow = 1 << 30;
  constexpr std::size_t kBytes = 2 * sizeof(int) * std::size_t{kRow};
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return expect(false, "8 GiB of addresses");
  int* const array = static_cast<int*>(memory);
  const int sizes[] = {2, kRow};
  const int columns[] = {2, 1};
  const int rows[] = {1, kRow};
  const int starts[] = {0, 7};
  const int from_0[] = {0, 0};
  MPI_Datatype column = MPI_DATATYPE_NULL;
  MPI_Datatype row = MPI_DATATYPE_NULL;
  MPI_Type_create_subarray(2, sizes, columns, starts, MPI_ORDER_C, MPI_INT, &column);
  MPI_Type_create_subarray(2, sizes, rows, from_0, MPI_ORDER_C, MPI_INT, &row);
  MPI_Type_commit(&column);
  MPI_Type_commit(&row);
  array[7] = 70 + world_rank();
  array[kRow + 7L] = 80 + world_rank();
  const int next = (world_rank() + 1) % world_size();
  Shared<int> shared(2);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  MPI_Win_fence(0, shared.window);
  MPI_Put(array, 1, column, next, 0, 2, MPI_INT, shared.window);
  expect_equal(MPI_Put(array, 0, MPI_INT, next, 0, 0, row, shared.window), MPI_SUCCESS, "a put of no rows");
  expect_equal(class_of(MPI_Put(array, 1, row, next, 0, 1, row, shared.window)), MPI_ERR_RMA_RANGE, "a row of 4 GiB");
  MPI_Win_fence(MPI_MODE_NOSUCCEED, shared.window);
  const int before = (world_rank() + world_size() - 1) % world_size();
  expect_equal(shared.memory[0], 70 + before, "the first element of a column");
  expect_equal(shared.memory[1], 80 + before, "the second element of a column");
  MPI_Type_free(&column);
  MPI_Type_free(&row);
  munmap(memory, kBytes);
}
