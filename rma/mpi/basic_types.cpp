// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/basic_types.hpp"

#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

namespace sluice::mpi_rma {
namespace {

Basic sized(MPI_Datatype type, Kind kind) {
  Basic basic{.type = type, .kind = kind};
  int size = 0;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  PMPI_Type_size(type, &size);
  PMPI_Type_get_extent(type, &lower, &extent);
  basic.size = basic.first = static_cast<std::size_t>(size);
  basic.extent = static_cast<std::size_t>(extent);
  return basic;
}

template <class Value>
Basic pair_of(MPI_Datatype type) {
  struct Pair {
    Value value;
    int index;
  };
  Basic basic = sized(type, Kind::pair);
  basic.first = sizeof(Value);
  basic.second_at = offsetof(Pair, index);
  basic.extent = sizeof(Pair);
  return basic;
}

using Table = std::map<MPI_Datatype, Basic>;

void add(Table& table, Kind kind, std::initializer_list<MPI_Datatype> types, bool is_signed = true) {
  for (const MPI_Datatype type : types) {
    if (type == MPI_DATATYPE_NULL) continue;  // this MPI has no such type
    Basic basic = sized(type, kind);
    basic.is_signed = is_signed;
    table.emplace(type, basic);
  }
}

Table make_table() {
  Table table;
  add(table, Kind::integer,
      {MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T,
       MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8});
  add(table, Kind::integer, {MPI_CHAR}, std::is_signed_v<char>);
  add(table, Kind::integer, {MPI_WCHAR}, std::is_signed_v<wchar_t>);
  add(table, Kind::integer,
      {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T,
       MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T},
      false);
  add(table, Kind::floating,
      {MPI_FLOAT, MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8, MPI_REAL16});
  add(table, Kind::complex,
      {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX,
       MPI_COMPLEX8, MPI_COMPLEX16, MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX, MPI_CXX_LONG_DOUBLE_COMPLEX});
  add(table, Kind::logical, {MPI_C_BOOL, MPI_CXX_BOOL, MPI_LOGICAL});
  add(table, Kind::bytes, {MPI_BYTE, MPI_PACKED, MPI_CHARACTER});
  for (const Basic& basic :
       {pair_of<float>(MPI_FLOAT_INT), pair_of<double>(MPI_DOUBLE_INT), pair_of<long>(MPI_LONG_INT),
        pair_of<short>(MPI_SHORT_INT), pair_of<int>(MPI_2INT), pair_of<long double>(MPI_LONG_DOUBLE_INT)})
    table.emplace(basic.type, basic);
  // Fortran's pairs are two numbers of one type; their elements are reduced as a whole.
  for (const MPI_Datatype type : {MPI_2INTEGER, MPI_2REAL, MPI_2DOUBLE_PRECISION})
    if (type != MPI_DATATYPE_NULL) table.emplace(type, sized(type, Kind::pair));
  return table;
}

}  // namespace

const Basic* named_type(MPI_Datatype type) {
  static const Table& table = *new Table(make_table());  // programs end in any order
  const auto found = table.find(type);
  return found == table.end() ? nullptr : &found->second;
}

const Basic* other_type(MPI_Datatype type, Kind kind) {
  static std::mutex& mutex = *new std::mutex;
  static Table& table = *new Table;
  const std::lock_guard lock(mutex);
  return &table.emplace(type, sized(type, kind)).first->second;
}

}  // namespace sluice::mpi_rma
