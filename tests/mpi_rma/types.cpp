// SPDX-License-Identifier: Apache-2.0
// Predefined types and operations, and types that programs make.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "tests/mpi_rma/checks.hpp"
#include "tests/mpi_rma/programs.hpp"

namespace {

using namespace checks;

struct Named {
  MPI_Datatype type;
  std::size_t bytes;
  char kind;  // i: integer, f: floating, c: complex, l: logical, b: bytes, p: pair
};

const std::vector<Named>& named_types() {
  static const std::vector<Named> all{{MPI_CHAR, 1, 'i'},
                                      {MPI_SIGNED_CHAR, 1, 'i'},
                                      {MPI_UNSIGNED_CHAR, 1, 'i'},
                                      {MPI_SHORT, 2, 'i'},
                                      {MPI_UNSIGNED_SHORT, 2, 'i'},
                                      {MPI_INT, 4, 'i'},
                                      {MPI_UNSIGNED, 4, 'i'},
                                      {MPI_LONG, 8, 'i'},
                                      {MPI_UINT64_T, 8, 'i'},
                                      {MPI_AINT, 8, 'i'},
                                      {MPI_FLOAT, 4, 'f'},
                                      {MPI_DOUBLE, 8, 'f'},
                                      {MPI_LONG_DOUBLE, 16, 'f'},
                                      {MPI_C_FLOAT_COMPLEX, 8, 'c'},
                                      {MPI_C_DOUBLE_COMPLEX, 16, 'c'},
                                      {MPI_C_BOOL, 1, 'l'},
                                      {MPI_BYTE, 1, 'b'},
                                      {MPI_2INT, 8, 'p'},
                                      {MPI_SHORT_INT, 8, 'p'},
                                      {MPI_FLOAT_INT, 8, 'p'},
                                      {MPI_DOUBLE_INT, 16, 'p'},
                                      {MPI_LONG_DOUBLE_INT, 32, 'p'}};
  return all;
}

std::vector<MPI_Op> operations(char kind) {
  switch (kind) {
    case 'i': return {MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR};
    case 'f': return {MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD};
    case 'c': return {MPI_SUM, MPI_PROD};
    case 'l': return {MPI_LAND, MPI_LOR, MPI_LXOR};
    case 'b': return {MPI_BAND, MPI_BOR, MPI_BXOR};
    default: return {MPI_MINLOC, MPI_MAXLOC};
  }
}

/// An element with a small value.
void set_element(std::byte* at, const Named& named, int value) {
  std::memset(at, 0, named.bytes);
  const auto put = [&](auto typed, std::size_t offset = 0) { std::memcpy(at + offset, &typed, sizeof typed); };
  if (named.type == MPI_FLOAT || named.type == MPI_FLOAT_INT) return put(static_cast<float>(value));
  if (named.type == MPI_DOUBLE || named.type == MPI_DOUBLE_INT) return put(static_cast<double>(value));
  if (named.type == MPI_LONG_DOUBLE || named.type == MPI_LONG_DOUBLE_INT) return put(static_cast<long double>(value));
  if (named.type == MPI_C_FLOAT_COMPLEX) return put(std::complex<float>(static_cast<float>(value), 1));
  if (named.type == MPI_C_DOUBLE_COMPLEX) return put(std::complex<double>(value, 1));
  if (named.kind == 'l') return put(static_cast<bool>(value % 2));
  at[0] = static_cast<std::byte>(value);
}

constexpr int kElements = 5;

std::vector<std::byte> elements(const Named& named, int seed) {
  std::vector<std::byte> all(kElements * named.bytes);
  for (int i = 0; i < kElements; ++i)
    set_element(all.data() + static_cast<std::size_t>(i) * named.bytes, named, (seed + 3 * i) % 11);
  return all;
}

bool same_data(const Named& named, const std::vector<std::byte>& a, const std::byte* b) {
  if (named.type != MPI_LONG_DOUBLE && named.type != MPI_LONG_DOUBLE_INT)
    return std::memcmp(a.data(), b, a.size()) == 0;
  for (std::size_t i = 0; i < a.size(); i += named.bytes)  // of 16 bytes 10 are used
    if (std::memcmp(a.data() + i, b + i, 10) != 0) return false;
  return true;
}

/// A get-accumulate at the next rank, compared with what MPI reduces here.
void check_operation(Shared<std::byte>& shared, const Named& named, MPI_Op op) {
  const int next = (world_rank() + 1) % world_size();
  std::vector<std::byte> before = elements(named, 1);
  const std::vector<std::byte> operands = elements(named, 4);
  std::vector<std::byte> found(before.size());
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, shared.window);
  MPI_Put(before.data(), kElements, named.type, next, 0, kElements, named.type, shared.window);
  MPI_Win_flush(next, shared.window);
  MPI_Get_accumulate(operands.data(), kElements, named.type, found.data(), kElements, named.type, next, 0, kElements,
                     named.type, op, shared.window);
  MPI_Win_flush(next, shared.window);
  expect(same_data(named, before, found.data()), "the elements before an operation");
  MPI_Accumulate(operands.data(), kElements, named.type, next, 0, kElements, named.type, op, shared.window);
  MPI_Win_flush(next, shared.window);
  MPI_Get_accumulate(nullptr, 0, named.type, found.data(), kElements, named.type, next, 0, kElements, named.type,
                     MPI_NO_OP, shared.window);
  MPI_Win_unlock(next, shared.window);
  for (int twice = 0; twice < 2; ++twice) MPI_Reduce_local(operands.data(), before.data(), kElements, named.type, op);
  expect(same_data(named, before, found.data()),
         "an operation on elements of " + std::to_string(named.bytes) + " bytes of kind " + named.kind);
}

/// Puts with one layout and gets with another what has the same elements.
void check_layouts(MPI_Datatype put_type, MPI_Datatype get_type, bool allocate, const std::string& what) {
  Shared<int> shared(64, allocate);
  std::vector<int> source(64);
  std::iota(source.begin(), source.end(), 100 * world_rank());
  std::vector<int> back(64, -1);
  const int next = (world_rank() + 1) % world_size();
  MPI_Win_fence(0, shared.window);
  MPI_Put(source.data() + 32, 1, put_type, next, 32, 1, get_type, shared.window);
  MPI_Win_fence(0, shared.window);
  MPI_Get(back.data() + 32, 1, put_type, next, 32, 1, get_type, shared.window);
  MPI_Win_fence(0, shared.window);
  std::vector<int> expected(64, -1);
  MPI_Sendrecv(source.data() + 32, 1, put_type, 0, 0, expected.data() + 32, 1, put_type, 0, 0, MPI_COMM_SELF,
               MPI_STATUS_IGNORE);
  expect(back == expected, what + ": put and got back");
  const std::vector<int> ones(64, 1);
  MPI_Accumulate(ones.data() + 32, 1, put_type, next, 32, 1, get_type, MPI_SUM, shared.window);
  MPI_Win_fence(0, shared.window);
  MPI_Get(back.data() + 32, 1, put_type, next, 32, 1, get_type, shared.window);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, shared.window);
  for (int& value : expected) value += value >= 0 ? 1 : 0;
  expect(back == expected, what + ": accumulated");
}

/// Types of 6 elements each, whose layouts differ.
std::vector<MPI_Datatype> layouts() {
  std::vector<MPI_Datatype> types(8);
  MPI_Type_vector(3, 2, 5, MPI_INT, &types[0]);
  MPI_Type_vector(3, 2, -5, MPI_INT, &types[1]);  // a lower bound below 0
  const int lengths[] = {1, 2, 3};
  const int places[] = {7, -6, 0};
  MPI_Type_indexed(3, lengths, places, MPI_INT, &types[2]);
  const int sizes[] = {4, 5};
  const int parts[] = {2, 3};
  const int starts[] = {1, 2};
  MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &types[3]);
  MPI_Datatype wide = MPI_DATATYPE_NULL;
  MPI_Type_create_resized(MPI_INT, -8, 12, &wide);
  MPI_Type_contiguous(6, wide, &types[4]);
  const MPI_Aint bytes[] = {-40, 60, 0};
  MPI_Datatype pair = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  const MPI_Datatype mixed[] = {MPI_INT, pair, MPI_INT};
  const int counts[] = {3, 1, 1};
  MPI_Type_create_struct(3, counts, bytes, mixed, &types[5]);
  MPI_Type_create_hindexed_block(3, 2, bytes, MPI_INT, &types[6]);
  const int global[] = {12};
  const int how[] = {MPI_DISTRIBUTE_CYCLIC};
  const int argument[] = {3};
  const int processes[] = {2};
  MPI_Type_create_darray(2, 1, 1, global, how, argument, processes, MPI_ORDER_C, MPI_INT, &types[7]);
  for (MPI_Datatype& type : types) MPI_Type_commit(&type);
  MPI_Type_free(&wide);
  MPI_Type_free(&pair);
  return types;
}

/// The bytes between the data of pairs stay as they are, at both ends.
void check_padding(Shared<std::byte>& shared) {
  struct Pair {
    short value;
    unsigned short between;
    int index;
  };
  const int next = (world_rank() + 1) % world_size();
  const Pair before{1, 0x1111, 2};
  const Pair operand{3, 0x2222, 4};
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, shared.window);
  for (const MPI_Op op : {MPI_REPLACE, MPI_MAXLOC}) {
    Pair found{0, 0x3333, 0};
    MPI_Put(&before, sizeof before, MPI_BYTE, next, 0, sizeof before, MPI_BYTE, shared.window);
    MPI_Win_flush(next, shared.window);
    MPI_Get_accumulate(&operand, 1, MPI_SHORT_INT, &found, 1, MPI_SHORT_INT, next, 0, 1, MPI_SHORT_INT, op,
                       shared.window);
    MPI_Win_flush(next, shared.window);
    expect(found.value == 1 && found.index == 2, "a pair that was there before");
    expect_equal(found.between, 0x3333, "what is between the data of a result");
    MPI_Get(&found, sizeof found, MPI_BYTE, next, 0, sizeof found, MPI_BYTE, shared.window);
    MPI_Win_flush(next, shared.window);
    expect(found.value == 3 && found.index == 4, "a pair that was changed");
    expect_equal(found.between, 0x1111, "what is between the data at the target");
  }
  MPI_Win_unlock(next, shared.window);
}

/// A predefined type for which MPI defines no operation is moved as bytes, alone and in a struct.
void check_moved(Shared<std::byte>& shared, MPI_Datatype type) {
  int bytes = 0;
  MPI_Type_size(type, &bytes);
  const auto size = static_cast<std::size_t>(bytes);
  std::vector<std::byte> elements(2 * size);
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<std::byte>(i + 1);
  std::vector<std::byte> found(elements.size());
  MPI_Datatype both = MPI_DATATYPE_NULL;
  const int lengths[] = {1, 1};
  const MPI_Aint places[] = {0, bytes};
  const MPI_Datatype types[] = {type, type};
  MPI_Type_create_struct(2, lengths, places, types, &both);
  MPI_Type_commit(&both);
  const int next = (world_rank() + 1) % world_size();
  const MPI_Win window = shared.window;
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, window);
  MPI_Put(elements.data(), 1, both, next, 0, 2, type, window);
  MPI_Win_flush(next, window);
  MPI_Get_accumulate(elements.data() + size, 1, type, found.data(), 1, type, next, 0, 1, type, MPI_REPLACE, window);
  MPI_Win_flush(next, window);
  expect(std::equal(found.begin(), found.begin() + bytes, elements.begin()),
         "what was put of a type without operations");
  MPI_Get(found.data(), 2, type, next, 0, 1, both, window);
  MPI_Win_flush(next, window);
  expect(std::equal(found.begin(), found.begin() + bytes, elements.begin() + bytes), "what a type was replaced by");
  expect(std::equal(found.begin() + bytes, found.end(), elements.begin() + bytes), "what was put by a struct");
  expect_equal(class_of(MPI_Accumulate(elements.data(), 1, type, next, 0, 1, type, MPI_BAND, window)), MPI_ERR_OP,
               "an operation on a type without operations");
  MPI_Win_unlock(next, window);
  MPI_Type_free(&both);
}

#ifdef MPICH_VERSION
/// A type of MPI 2 that marks an upper bound is no element.
void check_bound(Shared<std::byte>& shared) {
  const int lengths[] = {1, 1};
  const MPI_Aint places[] = {0, 12};
  const MPI_Datatype types[] = {MPI_INT, MPI_UB};
  MPI_Datatype bounded = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(2, lengths, places, types, &bounded);
  MPI_Type_commit(&bounded);
  const int next = (world_rank() + 1) % world_size();
  const int ones[] = {1, 1, 1, 1};
  int found[4] = {};
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, shared.window);
  MPI_Put(&found, 4, MPI_INT, next, 0, 4, MPI_INT, shared.window);
  MPI_Win_flush(next, shared.window);
  MPI_Accumulate(&ones, 2, MPI_INT, next, 0, 2, bounded, MPI_SUM, shared.window);
  MPI_Win_flush(next, shared.window);
  MPI_Get(&found, 4, MPI_INT, next, 0, 4, MPI_INT, shared.window);
  MPI_Win_unlock(next, shared.window);
  expect(found[0] == 1 && found[1] + found[2] == 0 && found[3] == 1, "an accumulate of a type with a bound");
  MPI_Type_free(&bounded);
}
#endif

}  // namespace

void run_other_types() {
  Shared<std::byte> shared(128);
  MPI_Win_set_errhandler(shared.window, MPI_ERRORS_RETURN);
  check_padding(shared);
#ifdef MPICH_VERSION
  check_bound(shared);
#endif
#ifdef MPI_COMPLEX32
  if (MPI_COMPLEX32 != MPI_DATATYPE_NULL) check_moved(shared, MPI_COMPLEX32);
#endif
}

void run_types() {
  for (const bool allocate : {true, false}) {
    Shared<std::byte> shared(kElements * 32, allocate);
    for (const Named& named : named_types())
      for (const MPI_Op op : operations(named.kind)) check_operation(shared, named, op);
  }
}

void run_layouts() {
  std::vector<MPI_Datatype> types = layouts();
  for (std::size_t i = 0; i < types.size(); ++i)
    check_layouts(types[i], types[(i + 3) % types.size()], i % 2 == 0, "layouts " + std::to_string(i));
  for (MPI_Datatype& type : types) MPI_Type_free(&type);
}

void run_bottom() {
  Shared<int> shared(8);
  int value = 40 + world_rank();
  int back = 0;
  MPI_Datatype absolute[2];
  int* const places[] = {&value, &back};
  for (int i = 0; i < 2; ++i) {
    MPI_Aint address = 0;
    MPI_Get_address(places[i], &address);
    const int one = 1;
    MPI_Type_create_hindexed(1, &one, &address, MPI_INT, &absolute[i]);
    MPI_Type_commit(&absolute[i]);
  }
  const int next = (world_rank() + 1) % world_size();
  MPI_Win_lock_all(0, shared.window);
  MPI_Put(MPI_BOTTOM, 1, absolute[0], next, 3, 1, MPI_INT, shared.window);
  MPI_Win_flush(next, shared.window);
  MPI_Get(MPI_BOTTOM, 1, absolute[1], next, 3, 1, MPI_INT, shared.window);
  MPI_Win_unlock_all(shared.window);
  expect_equal(back, value, "what was put from and got to MPI_BOTTOM");
  for (MPI_Datatype& type : absolute) MPI_Type_free(&type);
}
