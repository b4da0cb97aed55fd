// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/reach.hpp"

#include <algorithm>
#include <string>

#include "rma/mpi/refused.hpp"
#include "rma/mpi/rma_window.hpp"

namespace sluice::mpi_rma {
namespace {

[[noreturn]] void refuse_overflow() { throw Refused(MPI_ERR_RMA_RANGE, "bytes at 2^63 or beyond"); }

std::int64_t product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) refuse_overflow();
  return result;
}

std::int64_t sum(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) refuse_overflow();
  return result;
}

/// Elements may be of several regions, with others between them.
void check_attached(const RmaWindow& window, const There& there, const Flat& flat, std::int64_t at) {
  each_piece(flat, static_cast<std::size_t>(there.count), [&](std::ptrdiff_t offset, std::size_t bytes) {
    const auto begin = static_cast<std::uint64_t>(at + offset);
    // The first bytes are those of the window of Sluice's, and no program's.
    if (begin >= RmaWindow::kOwnBytes && window.areas->reaches(there.rank, begin, bytes)) return;
    throw Refused(MPI_ERR_RMA_RANGE, std::to_string(bytes) + " bytes at address " + std::to_string(begin) +
                                         " of rank " + std::to_string(there.rank) + " are not all attached");
  });
}

}  // namespace

std::size_t total(std::size_t of_one, MPI_Count count) {
  std::size_t all = 0;
  if (__builtin_mul_overflow(of_one, count, &all)) throw Refused(MPI_ERR_RMA_RANGE, "2^64 bytes or elements, or more");
  return all;
}

std::int64_t reach(const RmaWindow& window, const There& there, const Flat& flat) {
  const Part& part = window.parts[static_cast<std::size_t>(there.rank)];
  const std::int64_t at = product(there.displacement, part.unit);
  const std::int64_t last = product(there.count - 1, flat.extent);  // negative if values go down
  const std::int64_t begin = sum(sum(at, flat.begin), std::min<std::int64_t>(last, 0));
  const std::int64_t end = sum(sum(at, flat.end), std::max<std::int64_t>(last, 0));
  if (begin >= 0 && end <= part.bytes) {
    if (window.dynamic()) check_attached(window, there, flat, at);
    return at;
  }
  throw Refused(MPI_ERR_RMA_RANGE, "bytes " + std::to_string(begin) + " to " + std::to_string(end) + " of rank " +
                                       std::to_string(there.rank) + ", which has " + std::to_string(part.bytes));
}

}  // namespace sluice::mpi_rma
