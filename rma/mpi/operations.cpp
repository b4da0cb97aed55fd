// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/operations.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "rma/mpi/refused.hpp"

namespace sluice::mpi_rma {
namespace {

bool one_of(MPI_Op op, std::initializer_list<MPI_Op> ops) { return std::ranges::count(ops, op) > 0; }

template <class T, class Operation>
void combine(const std::byte* from, std::byte* to, std::size_t count, Operation operation) {
  for (std::size_t i = 0; i < count; ++i) {
    T operand;
    T there;
    std::memcpy(&operand, from + i * sizeof(T), sizeof(T));
    std::memcpy(&there, to + i * sizeof(T), sizeof(T));
    there = static_cast<T>(operation(there, operand));
    std::memcpy(to + i * sizeof(T), &there, sizeof(T));
  }
}

/// Combines unsigned integers of so many bytes. False: there are no such.
template <class Operation>
bool combine_unsigned(std::size_t size, const std::byte* from, std::byte* to, std::size_t count, Operation operation) {
  switch (size) {
    case 1: combine<std::uint8_t>(from, to, count, operation); return true;
    case 2: combine<std::uint16_t>(from, to, count, operation); return true;
    case 4: combine<std::uint32_t>(from, to, count, operation); return true;
    case 8: combine<std::uint64_t>(from, to, count, operation); return true;
    default: return false;
  }
}

/// Operations without a call of MPI's: sums of integers, signed or not, since the call takes longer than the atomics
/// around it; the least and the largest of unsigned ones, since MPI_Reduce_local of MPICH 4.0.2 compares them as signed
/// ones (test: MpiWindows.accesses_of_all_kinds_in_any_order_do_what_a_model_does). True if it was done.
bool combined_here(MPI_Op op, const Basic& basic, const std::byte* from, std::byte* to, std::size_t count) {
  if (basic.kind != Kind::integer || !basic.dense()) return false;
  const auto combine_by = [&](auto operation) { return combine_unsigned(basic.size, from, to, count, operation); };
  if (op == MPI_SUM) return combine_by([](auto a, auto b) { return a + b; });
  if (basic.is_signed) return false;
  if (op == MPI_MIN) return combine_by([](auto a, auto b) { return std::min(a, b); });
  return op == MPI_MAX && combine_by([](auto a, auto b) { return std::max(a, b); });
}

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

void apply(MPI_Op op, const Basic& basic, const void* operands, void* there, std::size_t count) {
  if (op == MPI_NO_OP || count == 0) return;
  const auto* from = static_cast<const std::byte*>(operands);
  auto* to = static_cast<std::byte*>(there);
  if (op == MPI_REPLACE) {
    std::memcpy(to, from, (count - 1) * basic.extent + basic.span());
    return;
  }
  if (combined_here(op, basic, from, to, count)) return;
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
