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

/// MPI 4.0, 6.9.2 and 6.9.4
bool defined(MPI_Op op, Kind kind) {
  if (one_of(op, {MPI_REPLACE, MPI_NO_OP})) return true;
  if (one_of(op, {MPI_MAX, MPI_MIN})) return kind == Kind::integer || kind == Kind::floating;
  if (one_of(op, {MPI_SUM, MPI_PROD})) return kind == Kind::integer || kind == Kind::floating || kind == Kind::complex;
  if (one_of(op, {MPI_LAND, MPI_LOR, MPI_LXOR})) return kind == Kind::integer || kind == Kind::logical;
  if (one_of(op, {MPI_BAND, MPI_BOR, MPI_BXOR})) return kind == Kind::integer || kind == Kind::bytes;
  return one_of(op, {MPI_MINLOC, MPI_MAXLOC}) && kind == Kind::pair;
}

template <class T>
void add(const std::byte* from, std::byte* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T operand;
    T there;
    std::memcpy(&operand, from + i * sizeof(T), sizeof(T));
    std::memcpy(&there, to + i * sizeof(T), sizeof(T));
    there = static_cast<T>(there + operand);
    std::memcpy(to + i * sizeof(T), &there, sizeof(T));
  }
}

/// Sums of integers up to 4 bytes, signed or not, without a call of MPI's, which takes longer than the atomics around
/// it. True if it was done.
bool add_here(MPI_Op op, const Basic& basic, const std::byte* from, std::byte* to, std::size_t count) {
  if (op != MPI_SUM || basic.kind != Kind::integer || !basic.dense()) return false;
  switch (basic.size) {
    case 1: add<std::uint8_t>(from, to, count); return true;
    case 2: add<std::uint16_t>(from, to, count); return true;
    case 4: add<std::uint32_t>(from, to, count); return true;
    default: return false;
  }
}

}  // namespace

void check_operation(MPI_Op op, const Basic& basic) {
  if (!defined(op, basic.kind)) throw Refused(MPI_ERR_OP, "the operation is not defined for elements of this type");
}

std::optional<Op> operation_of(MPI_Op op, const Basic& basic) {
  const bool integer = basic.kind == Kind::integer;
  if (op == MPI_REPLACE) return Op::replace;
  if (!integer && basic.kind != Kind::floating) return std::nullopt;
  if (op == MPI_SUM) return Op::sum;
  if (op == MPI_MIN) return Op::min;
  if (op == MPI_MAX) return Op::max;
  if (integer && op == MPI_BAND) return Op::bit_and;
  if (integer && op == MPI_BOR) return Op::bit_or;
  if (integer && op == MPI_BXOR) return Op::bit_xor;
  return std::nullopt;
}

void apply(MPI_Op op, const Basic& basic, const void* operands, void* there, std::size_t count) {
  if (op == MPI_NO_OP || count == 0) return;
  const auto* from = static_cast<const std::byte*>(operands);
  auto* to = static_cast<std::byte*>(there);
  if (op == MPI_REPLACE) {
    std::memcpy(to, from, (count - 1) * basic.extent + basic.span());
    return;
  }
  if (add_here(op, basic, from, to, count)) return;
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
