// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/access.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "rma/first_failure.hpp"
#include "rma/mpi/operations.hpp"
#include "rma/mpi/reach.hpp"
#include "rma/mpi/refused.hpp"
#include "rma/mpi/rma_window.hpp"
#include "rma/mpi/types.hpp"

namespace sluice::mpi_rma {
namespace {

std::byte* address_of(const Here& here) { return static_cast<std::byte*>(here.address); }

std::vector<std::byte> packed(const Here& from, const Flat& flat) {
  std::vector<std::byte> bytes;
  bytes.reserve(flat.bytes * static_cast<std::size_t>(from.count));
  each_piece(flat, static_cast<std::size_t>(from.count), [&](std::ptrdiff_t offset, std::size_t length) {
    const std::byte* const begin = address_of(from) + offset;
    bytes.insert(bytes.end(), begin, begin + length);
  });
  return bytes;
}

void unpack(const std::byte* bytes, const Here& to, const Flat& flat) {
  each_piece(flat, static_cast<std::size_t>(to.count), [&](std::ptrdiff_t offset, std::size_t length) {
    std::memcpy(address_of(to) + offset, bytes, length);
    bytes += length;
  });
}

/// @throws if the two sides have not the same number of bytes
void check_equal(std::size_t here, const There& there, const Flat& theirs) {
  const std::size_t bytes = total(theirs.bytes, there.count);
  if (here == bytes) return;
  throw Refused(MPI_ERR_TYPE, std::to_string(here) + " bytes here, and " + std::to_string(bytes) + " at rank " +
                                  std::to_string(there.rank));
}

}  // namespace

void put(RmaWindow& window, const Here& from, const There& to) {
  const Flat& mine = flat_of(from.type);
  const Flat& theirs = flat_of(to.type);
  const std::size_t bytes = total(mine.bytes, from.count);
  if (bytes == 0) return;
  check_equal(bytes, to, theirs);
  const std::int64_t begin = reach(window, to, theirs);
  std::vector<std::byte> copy;
  if (!mine.dense) copy = packed(from, mine);
  const std::byte* source = mine.dense ? address_of(from) + mine.begin : copy.data();
  try {
    each_piece(theirs, static_cast<std::size_t>(to.count), [&](std::ptrdiff_t offset, std::size_t length) {
      window.areas->write(to.rank, static_cast<std::uint64_t>(begin + offset), source, length, mine.dense);
      source += length;
    });
  } catch (...) {
    window.areas->keep(std::move(copy));
    throw;
  }
}

void get(RmaWindow& window, const Here& to, const There& from) {
  const Flat& mine = flat_of(to.type);
  const Flat& theirs = flat_of(from.type);
  const std::size_t bytes = total(mine.bytes, to.count);
  if (bytes == 0) return;
  check_equal(bytes, from, theirs);
  const std::int64_t begin = reach(window, from, theirs);
  std::vector<std::byte> copy;
  if (!mine.dense) copy.resize(bytes);
  std::byte* target = mine.dense ? address_of(to) + mine.begin : copy.data();
  rma::FirstFailure failure(false);
  failure.of([&] {
    each_piece(theirs, static_cast<std::size_t>(from.count), [&](std::ptrdiff_t offset, std::size_t length) {
      window.areas->read(from.rank, static_cast<std::uint64_t>(begin + offset), target, length);
      target += length;
    });
  });
  if (!mine.dense) failure.of([&] { window.areas->drain(from.rank); });  // before the copy is freed
  try {
    failure.report();
  } catch (...) {
    window.areas->keep(std::move(copy));
    throw;
  }
  if (!mine.dense) unpack(copy.data(), to, mine);
}

}  // namespace sluice::mpi_rma
