// SPDX-License-Identifier: Apache-2.0
#include "dialects/common/pairs.hpp"

#include <algorithm>
#include <cstring>

namespace sluice::stream_mpi {
namespace {

template <class Value>
struct Pair {
  Value value;
  int index;
};

/// Takes the lower index if both values are equal.
template <class Value, bool kLeast>
void combine(const void* in, void* in_out, std::size_t count) {
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(in_out);
  for (std::size_t i = 0; i < count; ++i, from += sizeof(Pair<Value>), to += sizeof(Pair<Value>)) {
    Pair<Value> one;
    Pair<Value> other;
    std::memcpy(&one, from, sizeof(one));
    std::memcpy(&other, to, sizeof(other));
    if (one.value == other.value) {
      other.index = std::min(one.index, other.index);
    } else if ((one.value < other.value) == kLeast) {
      other = one;
    }
    std::memcpy(to, &other, sizeof(other));
  }
}

template <class Value>
std::function<void(const void*, void*, std::size_t)> choose(MPI_Op op) {
  return op == MPI_MINLOC ? combine<Value, true> : combine<Value, false>;
}

}  // namespace

std::function<void(const void*, void*, std::size_t)> combine_pairs(MPI_Op op, const mpi_rma::Basic& basic) {
  if (op != MPI_MINLOC && op != MPI_MAXLOC) return {};
  if (basic.type == MPI_2INT) return choose<int>(op);
  if (basic.type == MPI_SHORT_INT) return choose<short>(op);
  if (basic.type == MPI_LONG_INT) return choose<long>(op);
  if (basic.type == MPI_FLOAT_INT) return choose<float>(op);
  if (basic.type == MPI_DOUBLE_INT) return choose<double>(op);
  if (basic.type == MPI_LONG_DOUBLE_INT) return choose<long double>(op);
  return {};
}

}  // namespace sluice::stream_mpi
