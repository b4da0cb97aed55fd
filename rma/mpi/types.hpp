// SPDX-License-Identifier: Apache-2.0
// Datatypes of MPI as lists of elements: predefined types at offsets, in the order of the type map.
#pragma once

#include "rma/mpi/recent.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::mpi_rma {

/// Properties of a predefined type that the operations of MPI need (MPI 4.0, 6.9.2).
enum class Kind : std::uint8_t { integer, floating, complex, logical, bytes, pair, other };

/// A predefined type.
struct Basic {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  Kind kind = Kind::bytes;
  std::size_t size = 0;    ///< bytes of data
  std::size_t extent = 0;  ///< from one element to the next
  /// Of a pair: bytes of the value, and the offset of its index, an int. Else `size`, and 0.
  std::size_t first = 0;
  std::size_t second_at = 0;
  bool is_signed = true;  ///< of an integer

  /// Bytes from the beginning of an element to the end of its data.
  std::size_t span() const { return second_at == 0 ? size : second_at + sizeof(int); }
  /// True if elements follow each other without gaps.
  bool dense() const { return size == extent; }
};

/// Elements that follow each other at the extent of their type.
struct Run {
  std::ptrdiff_t offset = 0;
  std::size_t count = 0;
  const Basic* basic = nullptr;
};

/// A datatype.
struct Flat {
  std::vector<Run> runs;
  std::ptrdiff_t extent = 0;
  std::ptrdiff_t begin = 0;     ///< of the first byte of data in memory
  std::ptrdiff_t end = 0;       ///< behind the last one
  std::size_t bytes = 0;        ///< of data
  std::size_t elements = 0;     ///< a pair is one
  const Basic* only = nullptr;  ///< the type of all elements; null if they differ, or there are none
  /// True if the elements of several values follow each other without gaps.
  bool dense = false;
};

/// The elements of a type, which stay until the type is freed. Any thread.
/// @throws Refused for a type that MPI does not describe
const Flat& flat_of(MPI_Datatype type);

/// Bytes of a value of a predefined type whose elements follow each other; 0: the type is another. Any thread.
std::size_t find_size(MPI_Datatype type);
struct KnownSize {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::size_t size = 0;
};
inline thread_local constinit Recent<KnownSize> t_sizes;
/// The size that this thread has learnt lately; 0: none.
inline std::size_t known_size(MPI_Datatype type) {
  const KnownSize& known = t_sizes.place_of(type);
  return known.type == type ? known.size : 0;
}
inline void learn_size(MPI_Datatype type) {
  KnownSize& known = t_sizes.place_of(type);
  if (known.type != type) known = {type, find_size(type)};
}

/// Calls `visit(offset, count, basic)` for the elements of `count` values of the type, in their order.
template <class Visit>
void each_run(const Flat& flat, std::size_t count, Visit visit) {
  if (flat.dense) {
    const Run& run = flat.runs.front();
    return visit(run.offset, run.count * count, *run.basic);
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (const Run& run : flat.runs)
      visit(run.offset + static_cast<std::ptrdiff_t>(i) * flat.extent, run.count, *run.basic);
  }
}

/// Calls `visit(offset, bytes)` for the bytes of data of so many elements at their extent.
template <class Visit>
void each_data(const Basic& basic, std::size_t count, Visit visit) {
  if (basic.dense()) return visit(std::size_t{0}, count * basic.size);
  for (std::size_t i = 0; i < count; ++i) {
    visit(i * basic.extent, basic.first);
    if (basic.second_at != 0) visit(i * basic.extent + basic.second_at, sizeof(int));
  }
}

/// Calls `visit(offset, bytes)` for the bytes of data, in the order of the elements; bytes that adjoin are one piece.
template <class Visit>
void each_piece(const Flat& flat, std::size_t count, Visit visit) {
  std::ptrdiff_t begin = 0;
  std::size_t length = 0;
  const auto add = [&](std::ptrdiff_t offset, std::size_t bytes) {
    if (length > 0 && offset == begin + static_cast<std::ptrdiff_t>(length)) {
      length += bytes;
      return;
    }
    if (length > 0) visit(begin, length);
    begin = offset;
    length = bytes;
  };
  each_run(flat, count, [&](std::ptrdiff_t offset, std::size_t n, const Basic& basic) {
    each_data(basic, n,
              [&](std::size_t at, std::size_t bytes) { add(offset + static_cast<std::ptrdiff_t>(at), bytes); });
  });
  if (length > 0) visit(begin, length);
}

/// Calls `visit(offset, stream, bytes)` for elements that adjoin: `stream` is where they lie in an array of all
/// elements, at their extent.
template <class Visit>
void each_element_piece(const Flat& flat, std::size_t count, Visit visit) {
  std::size_t stream = 0;
  each_run(flat, count, [&](std::ptrdiff_t offset, std::size_t n, const Basic& basic) {
    if (basic.dense()) {
      visit(offset, stream, n * basic.size);
      stream += n * basic.size;
      return;
    }
    for (std::size_t i = 0; i < n; ++i, stream += basic.extent)
      visit(offset + static_cast<std::ptrdiff_t>(i * basic.extent), stream, basic.span());
  });
}

}  // namespace sluice::mpi_rma
