// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/operations.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "rma/mpi/changes.hpp"
#include "rma/mpi/refused.hpp"

namespace sluice::mpi_rma {
namespace {

bool one_of(MPI_Op op, std::initializer_list<MPI_Op> ops) { return std::ranges::count(ops, op) > 0; }

}  // namespace

bool defined(MPI_Op op, Kind kind) {
  if (one_of(op, {MPI_REPLACE, MPI_NO_OP})) return true;
  if (one_of(op, {MPI_MAX, MPI_MIN})) return kind == Kind::integer || kind == Kind::floating;
  if (one_of(op, {MPI_SUM, MPI_PROD})) return kind == Kind::integer || kind == Kind::floating || kind == Kind::complex;
  if (one_of(op, {MPI_LAND, MPI_LOR, MPI_LXOR})) return kind == Kind::integer || kind == Kind::logical;
  if (one_of(op, {MPI_BAND, MPI_BOR, MPI_BXOR})) return kind == Kind::integer || kind == Kind::bytes;
  return one_of(op, {MPI_MINLOC, MPI_MAXLOC}) && kind == Kind::pair;
}

void check_operation(MPI_Op op, const Basic& basic) {
  if (!defined(op, basic.kind)) throw Refused(MPI_ERR_OP, "the operation is not defined for elements of this type");
}

void copy_elements(const Basic& basic, std::byte* to, const std::byte* from, std::size_t count) {
  each_data(basic, count, [&](std::size_t at, std::size_t bytes) { std::memcpy(to + at, from + at, bytes); });
}

void apply(MPI_Op op, const Basic& basic, const void* operands, void* there, std::size_t count) {
  if (op == MPI_NO_OP || count == 0) return;
  const auto* from = static_cast<const std::byte*>(operands);
  auto* to = static_cast<std::byte*>(there);
  if (const ChangeElements change = change_of(op, basic)) return change(to, from, nullptr, count * basic.size);
  if (op == MPI_REPLACE) return copy_elements(basic, to, from, count);
  constexpr std::size_t kMost = std::numeric_limits<int>::max() / 2;
  while (count > 0) {
    const std::size_t part = std::min(count, kMost);
    PMPI_Reduce_local(from, to, static_cast<int>(part), basic.type, op);
    from += part * basic.extent;
    to += part * basic.extent;
    count -= part;
  }
}

}  // namespace sluice::mpi_rma
